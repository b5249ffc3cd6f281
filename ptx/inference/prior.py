"""Prior: independent draws from the prior, the data ignored."""

from dataclasses import dataclass
from typing import Any, ClassVar

from jaxtyping import Array

from ptx.inference.engine import Info, require_integer
from ptx.target import Position, Target


@dataclass(frozen=True)
class Prior:
    """Draws from the prior, `w ~ p(w)`: independent, exact, without a gradient.

    For prior predictive checks and for the prior groups of an ArviZ tree. Needs every prior to be proper. Draws come
    from the sample sites; a `numpyro.factor` that reshapes the prior is not part of them, and a finding says so.

    Args:
        num_draws: draws of each chain.
        num_chains: chains; all draws are independent.

    Raises:
        ValueError: an improper prior, by site.
    """

    num_draws: int = 1000
    num_chains: int = 1

    is_sampler: ClassVar[bool] = True
    gradients_per_step: ClassVar[int] = 0

    def __post_init__(self) -> None:
        require_integer(self, "num_draws")
        require_integer(self, "num_chains")

    @property
    def num_steps(self) -> int:
        """One step a draw."""
        return self.num_draws

    def check(self, target: Target) -> tuple[str, ...]:
        """Refuse improper priors; report factors, which no draw of the sample sites can honour."""
        target.require_proper("engine Prior")
        factors = [term.name for term in target.terms if term.is_factor and term.row_axis is None]
        return tuple(
            f"Prior: factor '{name}' reshapes the prior; the draws come from the sample sites alone"
            for name in factors
        )

    def init(self, rng_key: Array, target: Target, position: Position) -> Position:
        """The state is the present draw."""
        return position

    def step(self, rng_key: Array, target: Target, state: Position, step: Array) -> tuple[Position, Info]:
        """A new draw, whatever came before."""
        return target.sample_prior(rng_key), {}

    def keeps(self, step: Any) -> Any:
        """Every step."""
        return step >= 0

    def draw(self, rng_key: Array, target: Target, state: Position) -> Position:
        """The present draw."""
        return state
