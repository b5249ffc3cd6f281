"""SGHMC: stochastic gradient Hamiltonian Monte Carlo."""

from dataclasses import dataclass
from typing import Any, ClassVar

from jaxtyping import Array

from ptx.inference import minibatch, schedule, stochastic_gradient
from ptx.inference.engine import Info, require_integer
from ptx.inference.schedule import Schedule
from ptx.inference.stochastic_gradient import Underdamped
from ptx.target import Position, Target


@dataclass(frozen=True)
class SGHMC:
    """Langevin dynamics with momentum on minibatch gradients, without an accept step.

        u <- u + h r
        r <- (1 - h c) r + h grad log p(u) + sqrt(2 c h T) xi,    xi ~ N(0, I)

    with log p(u) in summed nats, Jacobian included, its likelihood scaled by N / B; h the step size, c the friction.
    The variant is algorithm 2 of Chen, Fox and Guestrin (2014) with unit mass, no estimate of the gradient's noise
    (B = 0) and a momentum that is never drawn anew; the kernel is BlackJAX's, with the gradient taken at the new
    position. It is SGD with momentum 1 - h c and learning rate h^2 on -log p, plus noise; at h c = 1 it is SGLD with
    eps = h^2.

    Bias: on a Gaussian posterior of precision P the full-batch chain has the exact mean and covariance
    `T (P - k P^2)^-1` with `k = h^2 / (4 - 2 h c)`: the ratio of variances at two temperatures is exact at any h, and
    the width is off by a factor 1 / (1 - k P), second order in h. It is unstable beyond `h^2 = (4 - 2 h c) / P`.
    The variance of a minibatch's gradient heats the chain from T to about T + h Var(g) / (2 c), with Var(g) of order
    N^2 / B: more friction bears smaller batches.

    Args:
        num_draws: kept draws of each chain.
        num_warmup: steps before them (burn-in).
        num_chains: chains.
        thin: steps for each kept draw.
        step_size: h, a number or a schedule over all steps (`Polynomial`, `Cosine`, `Exponential`). The scale is that
            of a standard deviation: a third of the smallest posterior sd is a start.
        friction: c, per unit of time; h c is at most 1. Momentum is lost after about 1 / (h c) steps.
        batch_size: rows of a minibatch, B; None takes all rows, in their order.
        temperature: T; the density to the power 1/T is the target, Jacobian included. 0 is gradient ascent with
            momentum.

    Statistics: `log_density` (nats, before tempering, estimated on the minibatch), `step_size`, `nonfinite` (the
    gradient was not finite where the step led; the chain stayed and its momentum turned round).

    Cost: one gradient over B rows a step.

    Raises:
        ValueError, TypeError: settings out of range; friction * step_size above 1; a schedule that reaches zero before
            the last step; with minibatches, a likelihood that does not factor over rows, or latents that belong to a
            row.
    """

    num_draws: int = 1000
    num_warmup: int = 1000
    num_chains: int = 4
    thin: int = 1
    step_size: float | Schedule = 1e-2
    friction: float = 10.0
    batch_size: int | None = None
    temperature: float = 1.0

    is_sampler: ClassVar[bool] = True
    gradients_per_step: ClassVar[int] = 1

    def __post_init__(self) -> None:
        stochastic_gradient.check_settings(self)
        require_integer(self, "num_warmup", 0)
        stochastic_gradient.check_step_size(self, self.num_steps)
        stochastic_gradient.check_friction(self, self.num_steps)

    @property
    def num_steps(self) -> int:
        """Warm-up and sampling."""
        return self.num_warmup + self.num_draws * self.thin

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
        """One move of position and momentum."""
        step_size = schedule.at(self.step_size, step)
        return stochastic_gradient.move_underdamped(self, rng_key, target, state, step_size, self.temperature)

    def keeps(self, step: Any) -> Any:
        """Every `thin`-th step after warm-up."""
        return stochastic_gradient.keeps(self, step)

    def draw(self, rng_key: Array, target: Target, state: Underdamped) -> Position:
        """The chain's position."""
        return target.unflatten(state.position)
