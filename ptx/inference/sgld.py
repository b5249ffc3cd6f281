"""SGLD: stochastic gradient Langevin dynamics."""

from dataclasses import dataclass
from typing import Any, ClassVar

from jaxtyping import Array

from ptx.inference import minibatch, schedule, stochastic_gradient
from ptx.inference.engine import Info, require_integer
from ptx.inference.schedule import Schedule
from ptx.inference.stochastic_gradient import Overdamped
from ptx.target import Position, Target


@dataclass(frozen=True)
class SGLD:
    """Langevin dynamics on minibatch gradients, without an accept step.

        u <- u + eps_t grad log p(u) + sqrt(2 eps_t T) xi,    xi ~ N(0, I)

    with log p(u) in summed nats, Jacobian included, its likelihood scaled by N / B. The variant is Welling and Teh's
    (2011), whose step size is twice this eps (they write `u + eps/2 grad log p + N(0, eps)`); the kernel is BlackJAX's.

    Bias: on a Gaussian posterior of precision P the full-batch chain has the exact mean and covariance
    `T (P - eps/2 P^2)^-1`, too wide by a factor 1 / (1 - eps P / 2); it is unstable beyond eps = 2 / P. The variance
    of a minibatch's gradient heats the chain from T to about T + eps/2 Var(g), with Var(g) of order N^2 / B. Both
    vanish with eps: decreasing `Polynomial` steps make averages over a run consistent.

    Args:
        num_draws: kept draws of each chain.
        num_warmup: steps before them (burn-in).
        num_chains: chains.
        thin: steps for each kept draw.
        step_size: eps, a number or a schedule over all steps (`Polynomial`, `Cosine`, `Exponential`). The scale is
            that of a variance: a tenth of the smallest posterior variance is a start, less with small minibatches.
        batch_size: rows of a minibatch, B; None takes all rows, in their order.
        temperature: T; the density to the power 1/T is the target, Jacobian included. 0 is gradient ascent.

    Statistics: `log_density` (nats, before tempering, estimated on the minibatch), `step_size`, `nonfinite` (the
    gradient was not finite where the step led; the chain stayed).

    Cost: one gradient over B rows a step.

    Raises:
        ValueError, TypeError: settings out of range; a schedule that reaches zero before the last step; with
            minibatches, a likelihood that does not factor over rows, or latents that belong to a row.
    """

    num_draws: int = 1000
    num_warmup: int = 1000
    num_chains: int = 4
    thin: int = 1
    step_size: float | Schedule = 1e-4
    batch_size: int | None = None
    temperature: float = 1.0

    is_sampler: ClassVar[bool] = True
    gradients_per_step: ClassVar[int] = 1

    def __post_init__(self) -> None:
        stochastic_gradient.check_settings(self)
        require_integer(self, "num_warmup", 0)
        stochastic_gradient.check_step_size(self, self.num_steps)

    @property
    def num_steps(self) -> int:
        """Warm-up and sampling."""
        return self.num_warmup + self.num_draws * self.thin

    def check(self, target: Target) -> tuple[str, ...]:
        """Refuse minibatches of a target that does not factor over rows."""
        minibatch.check(self, target)
        return ()

    def init(self, rng_key: Array, target: Target, position: Position) -> Overdamped:
        """Gradient and log density of the first minibatch."""
        return stochastic_gradient.start_overdamped(self, rng_key, target, position)

    def step(self, rng_key: Array, target: Target, state: Overdamped, step: Array) -> tuple[Overdamped, Info]:
        """One Langevin move."""
        step_size = schedule.at(self.step_size, step)
        return stochastic_gradient.move_overdamped(self, rng_key, target, state, step_size, self.temperature)

    def keeps(self, step: Any) -> Any:
        """Every `thin`-th step after warm-up."""
        return stochastic_gradient.keeps(self, step)

    def draw(self, rng_key: Array, target: Target, state: Overdamped) -> Position:
        """The chain's position."""
        return target.unflatten(state.position)
