"""MAP: the mode of the unconstrained density, by stochastic gradients; several chains are an ensemble."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
from jaxtyping import Array

from ptx.inference import minibatch, optimiser, schedule
from ptx.inference.engine import Info
from ptx.inference.schedule import Schedule
from ptx.target import Position, Target


class State(NamedTuple):
    """The search over positions, and the stream of minibatches."""

    search: optimiser.State
    stream: minibatch.Stream | None


@dataclass(frozen=True)
class MAP:
    """Maximum a posteriori: one point a chain.

        u* = argmax_u log p(T(u)) + log |det T'(u)| + N/B sum_n log p(y_n | T(u), x_n)

    The log-Jacobian is included, so this is the mode of the density of the *unconstrained* position, the point that
    Laplace's approximation expands at. Where a site is real (network weights) it is the usual mode; for a constrained
    site it is not the mode of the density over the support: a scale with an exponential prior and no data has the
    latter at 0 and the former at the prior's mean. With `num_chains > 1` the members start at draws of their own and
    form a deep ensemble (Lakshminarayanan et al. 2017); predictions average over them.

    Args:
        num_steps: gradients of each chain. The draw is the last point where density and gradient were evaluated
            and finite, so the last step evaluates only.
        num_chains: members of the ensemble. Members that `init` starts at one point stay equal on full data.
        optimiser: name of an optax optimiser that needs nothing but a learning rate: adam, adamw, sgd, rmsprop,
            lion ... Note that adamw decays weights on top of the prior.
        learning_rate: a number or a schedule (`Cosine`, `Exponential`, `Polynomial`) of the step.
        batch_size: rows of a minibatch; None takes all.
        max_gradient_norm: scale the gradient down to this Euclidean norm where it is longer; None does not.
        kl_weight: factor of the KL of latents that carry their own posterior (attention rows), 1 for a bound; a number,
            or a schedule such as `Linear(0.0, 1.0, 1000)`. Without such latents it has no effect.

    History: `log_density` (nats, summed, of the batch scaled to all rows), `gradient_norm` (before clipping),
    `nonfinite` (skipped steps). On full data the last finite `log_density` is that of the draw.

    Latents that carry their own posterior (attention rows) are drawn from it at each step and count their KL once a
    row: the density climbed is then a lower bound of the one above, from one draw.

    Cost: one gradient a step.

    Raises:
        ValueError, TypeError: settings out of range, an optimiser that is unknown or needs more; minibatches of a
            likelihood that does not factor over rows.
    """

    num_steps: int = 2000
    num_chains: int = 1
    optimiser: str = "adam"
    learning_rate: float | Schedule = 0.01
    batch_size: int | None = None
    max_gradient_norm: float | None = None
    kl_weight: float | Schedule = 1.0

    is_sampler: ClassVar[bool] = False
    gradients_per_step: ClassVar[int] = 1

    def __post_init__(self) -> None:
        optimiser.check_settings(self)

    @property
    def num_draws(self) -> int:
        """One: the point."""
        return 1

    def check(self, target: Target) -> tuple[str, ...]:
        """Refuse minibatches of what does not factor over rows."""
        minibatch.check(self, target)
        return ()

    def init(self, rng_key: Array, target: Target, position: Position) -> State:
        """The search at its start, with the log density there."""
        search = optimiser.start(self, position, target.log_density(position))
        return State(search, minibatch.start(self.batch_size, target, rng_key))

    def step(self, rng_key: Array, target: Target, state: State, step: Array) -> tuple[State, Info]:
        """One gradient, one move."""
        stream, batch = minibatch.take(self.batch_size, target, state.stream)
        kl_weight = schedule.at(self.kl_weight, step)
        log_density, gradient = jax.value_and_grad(target.log_density)(
            state.search.parameters, batch, rng_key, kl_weight
        )
        search, info = optimiser.ascend(self, state.search, log_density, gradient, step)
        return State(search, stream), {"log_density": log_density, **info}

    def keeps(self, step: Any) -> Any:
        """No step: the draw comes after the last."""
        return step < 0

    def draw(self, rng_key: Array, target: Target, state: State) -> Position:
        """The point."""
        return state.search.finite
