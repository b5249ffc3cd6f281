"""SVI: stochastic variational inference with NumPyro's automatic guides."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ptx.inference import autoguide, minibatch, optimiser, schedule
from ptx.inference.curvature import covariance_factor
from ptx.inference.engine import Info, require_integer
from ptx.inference.schedule import Schedule
from ptx.target import Position, Target


class State(NamedTuple):
    """The search over the guide's parameters, the stream of minibatches, and (Laplace alone, after the last step) the
    factor F of the covariance F F'."""

    search: optimiser.State
    stream: minibatch.Stream | None
    factor: Float[Array, "size size"] | None


@dataclass(frozen=True)
class SVI:
    """Variational inference: the member of a family q_phi closest to the posterior.

        ELBO(phi) = E_{u ~ q_phi} [ log_prior(u) + N/B sum_n log p(y_n | u, x_n) - log q_phi(u) ]

    in nats, summed, over the unconstrained position u (log-Jacobian in the prior); ELBO <= log p(y), with equality
    where q is the posterior. Its gradient is the reparameterised one (Kingma and Welling 2014; automatic
    differentiation VI, Kucukelbir et al. 2017), estimated with `num_particles` draws a step.

    Args:
        guide: name of a NumPyro autoguide, the family q. AutoNormal and AutoDiagonalNormal (mean field; sds too small
            where the posterior correlates), AutoMultivariateNormal (d^2 memory), AutoLowRankMultivariateNormal,
            AutoBatchedMultivariateNormal and AutoBatchedLowRankMultivariateNormal (one site with a leading axis),
            AutoIAFNormal and AutoBNAFNormal (flows), AutoDAIS (annealed; full data alone), AutoDelta (a point) and
            AutoLaplaceApproximation (the mode, and the curvature there).
        guide_options: pairs of option and value, as in `(("init_scale", 0.01), ("rank", 4))`.
        num_steps: steps of each fit. Draws come from the last parameters where ELBO and gradient were evaluated and
            finite, so the last step evaluates only.
        num_draws: draws from each fit's q.
        num_chains: independent fits, each from a start of its own. Flows start at a random map, not at a position.
        num_particles: draws of u a step.
        optimiser: name of an optax optimiser that needs nothing but a learning rate.
        learning_rate: a number or a schedule (`Cosine`, `Exponential`, `Polynomial`) of the step.
        batch_size: rows of a minibatch; None takes all.
        max_gradient_norm: scale the gradient down to this Euclidean norm where it is longer; None does not.
        kl_weight: factor of the KL of latents that carry their own posterior (attention rows), 1 for a bound; a number,
            or a schedule such as `Linear(0.0, 1.0, 1000)`. Without such latents it has no effect.

    Latents that carry their own posterior r (attention rows, r(z_n | x_n, u)) are drawn from it, one draw a particle:
    log p(y_n | u, x_n) above becomes log p(y_n | u, z_n, x_n) - kl_weight KL(r, prior), once a row.

    History: `elbo` (the estimate of each step; with minibatches that of the batch scaled to all rows),
    `gradient_norm`, `nonfinite` (skipped steps), `n_steps` (gradients of the log density). The objectives of
    AutoDelta and AutoLaplaceApproximation are no ELBO: theirs is `log_density`, at the point.

    AutoLaplaceApproximation draws from N(u*, P^-1), P the negative Hessian of the log density on full data at the
    point found. Eigenvalues of P below d * eps * max |eigenvalue| (flat or rising directions: no mode was reached, or
    none is there) are raised to that bound, and `damped` counts them at the last step. An interrupted fit has no
    curvature yet: its draws are NaN, and a finding says so.

    Cost: `num_particles` gradients a step; AutoDAIS 1 + K for each; AutoLaplaceApproximation d more at the end.

    Raises:
        ValueError, TypeError: settings out of range, a guide or optimiser that is unknown or cannot serve, with the
            reason; minibatches of a likelihood that does not factor over rows.
    """

    guide: str = "AutoNormal"
    guide_options: tuple[tuple[str, Any], ...] = ()
    num_steps: int = 2000
    num_draws: int = 1000
    num_chains: int = 1
    num_particles: int = 1
    optimiser: str = "adam"
    learning_rate: float | Schedule = 0.01
    batch_size: int | None = None
    max_gradient_norm: float | None = None
    kl_weight: float | Schedule = 1.0

    is_sampler: ClassVar[bool] = False
    gradients_per_step: ClassVar[int] = 1

    def __post_init__(self) -> None:
        optimiser.check_settings(self)
        for name in ("num_draws", "num_particles"):
            require_integer(self, name)
        autoguide.check_settings(self)

    def check(self, target: Target) -> tuple[str, ...]:
        """Refuse minibatches of what does not factor over rows, and sites that the guide cannot lay out."""
        minibatch.check(self, target)
        autoguide.check_target(self, target)
        return ()

    def init(self, rng_key: Array, target: Target, position: Position) -> State:
        """The guide at its start, with the log density of the position."""
        key_guide, key_stream = jax.random.split(rng_key)
        parameters = autoguide.start(self, key_guide, target, position)
        search = optimiser.start(self, parameters, target.log_density(position))
        vector = target.flatten(position)
        is_laplace = self.guide == "AutoLaplaceApproximation"
        factor = jnp.zeros((vector.size, vector.size), vector.dtype) if is_laplace else None
        return State(search, minibatch.start(self.batch_size, target, key_stream), factor)

    def step(self, rng_key: Array, target: Target, state: State, step: Array) -> tuple[State, Info]:
        """One gradient of the ELBO, one move."""
        stream, batch = minibatch.take(self.batch_size, target, state.stream)

        kl_weight = schedule.at(self.kl_weight, step)

        def objective(parameters: dict[str, Any]) -> Float[Array, ""]:
            return autoguide.objective(self, rng_key, target, parameters, batch, kl_weight)

        value, gradient = jax.value_and_grad(objective)(state.search.parameters)
        search, info = optimiser.ascend(self, state.search, value, gradient, step)
        name = "log_density" if self.guide in autoguide.POINTS else "elbo"
        info = {name: value, **info, "n_steps": jnp.int32(autoguide.num_gradients(self))}
        if state.factor is None:
            return State(search, stream, None), info
        is_last, unknown = step == self.num_steps - 1, state.factor
        factor, damped = jax.lax.cond(
            is_last, lambda: self._curvature(target, search.finite), lambda: (unknown, jnp.int32(0))
        )
        info |= {"n_steps": info["n_steps"] + jnp.where(is_last, len(unknown), 0), "damped": damped}
        return State(search, stream, factor), info

    def _curvature(self, target: Target, parameters: dict[str, Any]) -> tuple[Array, Array]:
        """Laplace's covariance at the point, on full data."""
        point = target.flatten(autoguide.draw(self, jax.random.key(0), target, parameters))
        return covariance_factor(lambda vector: target.log_density(target.unflatten(vector)), point)

    def keeps(self, step: Any) -> Any:
        """No step: draws come after the last."""
        return step < 0

    def draw(self, rng_key: Array, target: Target, state: State) -> Position:
        """A draw from q."""
        position = autoguide.draw(self, rng_key, target, state.search.finite)
        if state.factor is None:
            return position
        noise = jax.random.normal(rng_key, (len(state.factor),), state.factor.dtype)
        shift = jnp.where(jnp.any(state.factor != 0), state.factor @ noise, jnp.nan)
        return target.unflatten(target.flatten(position) + shift)
