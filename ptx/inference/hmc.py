"""HMC: Hamiltonian Monte Carlo with a jittered number of leapfrog steps and Stan's warm-up."""

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from blackjax.mcmc.hmc import build_kernel
from jaxtyping import Array

from ptx.inference import hamiltonian
from ptx.inference.engine import Info, require_integer, require_positive
from ptx.target import Position, Target


@dataclass(frozen=True)
class HMC:
    """Hamiltonian Monte Carlo.

        H(u, r) = -log p(u) / T + r' M^-1 r / 2,    L = clip(ceil(x * trajectory_length / step_size), 1, max_leapfrog)

    with x ~ uniform(0.5, 1.5) anew for each draw: the jitter breaks the periodic orbits on which a fixed number of
    leapfrog steps never mixes (Neal 2011, section 3.2). L depends on x and the step size alone, so each draw leaves
    the target invariant. Mass matrix and step size are adapted as in Stan.

    Args:
        num_draws: kept draws of each chain.
        num_warmup: steps of adaptation before them; 0 keeps `step_size` and a unit mass matrix.
        num_chains: chains, adapted independently.
        thin: steps for each kept draw.
        step_size: the first step size tried (or the fixed one).
        trajectory_length: mean integration time; pi/2 turns a Gaussian whitened by M by a quarter.
        max_leapfrog: cap on L, so also on the gradients of a draw.
        target_acceptance_rate: mean acceptance that dual averaging aims at.
        dense_mass: adapt a full mass matrix, at d^2 memory and d^3 time a draw, instead of its diagonal.
        temperature: T; the density to the power 1/T is the target, Jacobian included.

    Statistics: `lp` (log p(u), nats, before tempering), `acceptance_rate`, `step_size`, `diverging`, `energy`,
    `n_steps` (gradients).

    Cost: L full-data gradients a draw.

    Raises:
        ValueError, TypeError: settings out of range; a Dirichlet or Beta site of small concentration (below 0.1).
    """

    num_draws: int = 1000
    num_warmup: int = 1000
    num_chains: int = 4
    thin: int = 1
    step_size: float = 1.0
    trajectory_length: float = 1.5707963267948966
    max_leapfrog: int = 128
    target_acceptance_rate: float = 0.8
    dense_mass: bool = False
    temperature: float = 1.0

    is_sampler: ClassVar[bool] = True
    gradients_per_step: ClassVar[int] = 1

    def __post_init__(self) -> None:
        hamiltonian.check_settings(self)
        require_positive(self, "trajectory_length")
        require_integer(self, "max_leapfrog")

    @property
    def num_steps(self) -> int:
        """Warm-up and sampling."""
        return self.num_warmup + self.num_draws * self.thin

    def check(self, target: Target) -> tuple[str, ...]:
        """Refuse what Hamiltonian dynamics gets wrong."""
        hamiltonian.check_target(self, target)
        return ()

    def init(self, rng_key: Array, target: Target, position: Position) -> hamiltonian.State:
        """Log density and gradient at the start, unit mass matrix."""
        return hamiltonian.start(self, target, position)

    def step(
        self, rng_key: Array, target: Target, state: hamiltonian.State, step: Array
    ) -> tuple[hamiltonian.State, Info]:
        """One trajectory, and during warm-up one step of adaptation."""
        key_length, key_move = jax.random.split(rng_key)
        length = jax.random.uniform(key_length, minval=0.5, maxval=1.5) * self.trajectory_length
        num_leapfrog = jnp.clip(jnp.ceil(length / state.step_size), 1, self.max_leapfrog).astype(int)
        density = hamiltonian.log_density(target, self.temperature)
        kernel: Any = build_kernel()  # its hints allow Python floats only
        chain, info = kernel(
            key_move, state.chain, density, state.step_size, state.inverse_mass_matrix, num_leapfrog
        )
        before = hamiltonian.energy(
            state, info.momentum
        )  # BlackJAX gives that of the proposal, rejected or not
        statistics = {
            "lp": chain.logdensity * self.temperature,
            "acceptance_rate": info.acceptance_rate,
            "step_size": state.step_size,
            "diverging": info.is_divergent,
            "energy": jnp.where(info.is_accepted, info.energy, before),
            "n_steps": num_leapfrog,
        }
        adapted = hamiltonian.adapt(self, state._replace(chain=chain), info.acceptance_rate, step)
        return adapted, {name: jnp.asarray(value) for name, value in statistics.items()}

    def keeps(self, step: Any) -> Any:
        """Every `thin`-th step after warm-up."""
        return hamiltonian.keeps(self, step)

    def draw(self, rng_key: Array, target: Target, state: hamiltonian.State) -> Position:
        """The chain's position."""
        return target.unflatten(state.chain.position)
