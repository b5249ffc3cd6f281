"""What an engine is: settings of one algorithm, a frozen dataclass of plain values, and its pure functions."""

import math
import numbers
from typing import Any, ClassVar, Protocol

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ptx.target import Position, Target

State = Any
Info = dict[str, Array]


class Engine(Protocol):
    """The whole contract between an engine and the driver, `ptx.infer`.

    An engine is a frozen dataclass of plain values, so that it is hashable and `eval(repr(engine)) == engine`. The
    driver runs `num_steps` steps of each chain in compiled chunks; an engine never loops over steps, never splits
    chains and never meets NumPy. Chain c at step t gets the key `fold_in(fold_in(rng_key, c), t)`, so a draw depends
    on seed, chain, step and settings alone.

    A sampler (`is_sampler = True`) emits `draw(...)` at every step that `keeps`; an approximation draws `num_draws`
    times after the last step. Scalars in `info` become `posterior.history`, and `posterior.statistics` at kept steps;
    names ArviZ knows (`lp`, `acceptance_rate`, `step_size`, `diverging`, `energy`, `n_steps`, `tree_depth`) are used
    where they apply, `nonfinite` marks a step whose gradient was not finite and which was skipped, `nonfinite_index`
    the first entry of it that was not, in the position flattened by site name.
    """

    is_sampler: ClassVar[bool]
    gradients_per_step: ClassVar[int]  # where info has `n_steps`, that is counted instead

    @property  # read-only here, so that a frozen field serves
    def num_draws(self) -> int:
        """Draws of each chain."""
        ...

    @property
    def num_chains(self) -> int:
        """Chains, or members of an ensemble."""
        ...

    @property
    def num_steps(self) -> int:
        """Steps a chain runs, warm-up included."""
        ...

    def check(self, target: Target) -> tuple[str, ...]:
        """Refuse, with the site's name, a target that this engine cannot do; return findings about one it can."""
        ...

    def init(self, rng_key: Array, target: Target, position: Position) -> State:
        """State before the first step. Every float in it must be finite, or the start is refused."""
        ...

    def step(self, rng_key: Array, target: Target, state: State, step: Array) -> tuple[State, Info]:
        """One step; `state` is what the next step needs, `info` what a diagnostic wants."""
        ...

    def keeps(self, step: Any) -> Any:
        """Whether the step's draw is kept; works on NumPy and on traced integers."""
        ...

    def draw(self, rng_key: Array, target: Target, state: State) -> Position:
        """A position: the chain's present one (samplers), or a draw of the approximation."""
        ...


def first_nonfinite(gradient: Float[Array, "size"]) -> Int[Array, ""]:
    """Index of the first entry that is not finite, for `nonfinite_index`; -1 where all are finite."""
    bad = ~jnp.isfinite(gradient)
    return jnp.where(bad.any(), jnp.argmax(bad), -1).astype(jnp.int32)


def require_integer(engine: Any, name: str, minimum: int = 1) -> None:
    """Refuse a field that is no integer of at least `minimum`; a NumPy integer becomes Python's."""
    value = getattr(engine, name)
    if isinstance(value, numbers.Integral) and not isinstance(value, bool):
        value = int(value)
        object.__setattr__(engine, name, value)
    if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
        kind = TypeError if not isinstance(value, int) or isinstance(value, bool) else ValueError
        raise kind(f"{type(engine).__name__}: {name} must be an integer >= {minimum}, got {value!r}")


def require_positive(engine: Any, name: str, maximum: float = math.inf, allow_zero: bool = False) -> None:
    """Refuse a field that is no finite number in (0, maximum], or [0, maximum] with `allow_zero`.

    A NumPy number becomes Python's: an engine is plain values, whatever it was made with.
    """
    value = getattr(engine, name)
    if isinstance(value, numbers.Real) and not isinstance(value, (bool, int)):
        value = float(value)
        object.__setattr__(engine, name, value)
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise TypeError(f"{type(engine).__name__}: {name} must be a number, got {value!r}")
    if not math.isfinite(value) or value > maximum or value < 0 or (value == 0 and not allow_zero):
        bound = "" if maximum == math.inf else f" and at most {maximum}"
        low = "zero or positive" if allow_zero else "positive"
        raise ValueError(f"{type(engine).__name__}: {name} must be {low}, finite{bound}; got {value!r}")
