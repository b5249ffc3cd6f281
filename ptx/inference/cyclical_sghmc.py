"""Cyclical SGHMC: Langevin dynamics with momentum whose step size falls and starts again, to visit several modes."""

from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array

from ptx.inference import cyclical, minibatch, stochastic_gradient
from ptx.inference.engine import Info
from ptx.inference.stochastic_gradient import Underdamped
from ptx.target import Position, Target


@dataclass(frozen=True)
class CyclicalSGHMC:
    """SGHMC in cycles of exploration and sampling.

        u <- u + h_t r
        r <- (1 - h_t c) r + h_t grad log p(u) + sqrt(2 c h_t T_t) xi,    xi ~ N(0, I)
        h_t = step_size / 2 (cos(pi j / n) + 1),    j = t mod n
        T_t = 0 (exploration) while j / n < exploration_fraction, else `temperature` (sampling)

    with log p(u) in summed nats, Jacobian included, its likelihood scaled by N / B; c the friction. Cycles are those
    of Zhang, Li, Zhang, Chen and Wilson (2020). They hold the decay of the momentum fixed and let the learning rate
    fall; here the friction is fixed and the time step h falls, so the learning rate h^2 falls and the momentum kept,
    1 - h c, rises towards 1, and the momentum's law N(0, T I) stays right as h changes. The kernel is BlackJAX's.
    Exploration is gradient ascent with momentum. Draws describe several modes, each as SGHMC does, but how many cycles
    end in a mode does not estimate its weight.

    A cycle has `n = num_draws / num_cycles * thin / (1 - exploration_fraction)` steps (`steps_per_cycle`, rounded up)
    and gives `num_draws / num_cycles` draws: every `thin`-th step of its sampling stage, its last step included. A run
    has `num_cycles * n` steps; it needs no warm-up, though early cycles may be dropped by their number.

    Args:
        num_draws: kept draws of each chain, a multiple of num_cycles.
        num_cycles: cycles of each chain.
        num_chains: chains.
        thin: steps of the sampling stage for each kept draw.
        step_size: h at the start of a cycle; the scale is that of a standard deviation, and up to twice the smallest
            sd of a mode is stable there.
        friction: c, per unit of time; step_size * friction is at most 1.
        exploration_fraction: part of a cycle without noise, in [0, 1).
        batch_size: rows of a minibatch, B; None takes all rows, in their order.
        temperature: T while sampling; the density to the power 1/T is the target, Jacobian included. 0 is gradient
            ascent with momentum throughout.

    Statistics: `cycle` (from 0), `stage` (0 explores, 1 samples: every draw has 1), `log_density` (nats, before
    tempering, estimated on the minibatch), `step_size`, `nonfinite` (the gradient was not finite where the step led;
    the chain stayed and its momentum turned round).

    Cost: one gradient over B rows a step.

    Raises:
        ValueError, TypeError: settings out of range; friction * step_size above 1; with minibatches, a likelihood that
            does not factor over rows, or latents that belong to a row.
    """

    num_draws: int = 1000
    num_cycles: int = 10
    num_chains: int = 4
    thin: int = 5
    step_size: float = 3e-2
    friction: float = 10.0
    exploration_fraction: float = 0.5
    batch_size: int | None = None
    temperature: float = 1.0

    is_sampler: ClassVar[bool] = True
    gradients_per_step: ClassVar[int] = 1

    def __post_init__(self) -> None:
        stochastic_gradient.check_settings(self)
        cyclical.check_settings(self)
        stochastic_gradient.check_friction(self, self.num_steps)

    @property
    def steps_per_cycle(self) -> int:
        """n, exploration and sampling."""
        return cyclical.steps_per_cycle(self)

    @property
    def num_steps(self) -> int:
        """All cycles."""
        return self.num_cycles * self.steps_per_cycle

    def check(self, target: Target) -> tuple[str, ...]:
        """Refuse minibatches of a target that does not factor over rows."""
        minibatch.check(self, target)
        return ()

    def init(self, rng_key: Array, target: Target, position: Position) -> Underdamped:
        """Log density of the first minibatch; momentum from N(0, T I)."""
        return stochastic_gradient.start_underdamped(self, rng_key, target, position)

    def step(
        self, rng_key: Array, target: Target, state: Underdamped, step: Array
    ) -> tuple[Underdamped, Info]:
        """One move of position and momentum, without noise while the cycle explores."""
        step_size = cyclical.step_size(self, step)
        temperature = jnp.where(cyclical.samples(self, step), self.temperature, 0.0)
        state, info = stochastic_gradient.move_underdamped(
            self, rng_key, target, state, step_size, temperature
        )
        return state, info | cyclical.info(self, step)

    def keeps(self, step: Any) -> Any:
        """Every `thin`-th step of a sampling stage, the last step of each cycle included."""
        return cyclical.keeps(self, step)

    def draw(self, rng_key: Array, target: Target, state: Underdamped) -> Position:
        """The chain's position."""
        return target.unflatten(state.position)
