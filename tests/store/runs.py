"""Small stored runs that the tests of the store share: a model, engines, and what it means that two runs are one."""

import os
from contextlib import contextmanager
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from models_for_tests import regression_data

import ptx
from ptx import drive, inference, store
from ptx.store import disk, layout

ROOT = Path(__file__).parents[2]
CHUNK_SIZE = 9  # steps between two saves
DATA = regression_data(12)
# Two chains of each engine, minibatches and thinning where it takes them. One row an engine.
ENGINES = {
    "Prior": inference.Prior(num_draws=12, num_chains=2),
    "HMC": inference.HMC(num_draws=9, num_warmup=9, num_chains=2, max_leapfrog=4),
    "MAP": inference.MAP(num_steps=17, learning_rate=0.1, batch_size=5, num_chains=2),
    "NUTS": inference.NUTS(num_draws=9, num_warmup=9, num_chains=2, max_tree_depth=3),
    "NUTS dense": inference.NUTS(
        num_draws=9, num_warmup=9, num_chains=2, max_tree_depth=3, dense_mass=True, thin=2
    ),
    "SGLD": inference.SGLD(num_draws=9, num_warmup=9, num_chains=2, step_size=1e-3, batch_size=5),
    "SGHMC": inference.SGHMC(num_draws=9, num_warmup=4, num_chains=2, step_size=1e-2, batch_size=5, thin=2),
    "CyclicalSGLD": inference.CyclicalSGLD(
        num_draws=12, num_cycles=3, num_chains=2, step_size=1e-3, batch_size=5
    ),
    "CyclicalSGHMC": inference.CyclicalSGHMC(
        num_draws=12, num_cycles=3, num_chains=2, step_size=1e-2, thin=2
    ),
    "SVI": inference.SVI(num_steps=17, num_draws=9, num_chains=2, learning_rate=0.1, batch_size=5),
}
SHORT_WARM_UP = "ignore:.*divergent trajectory:RuntimeWarning"


def scaled(inputs, targets=None):
    """A regression with a site on the reals and a site on the positive numbers."""
    w = numpyro.sample("w", dist.Normal(0, 2.0).expand([3]).to_event(1))
    scale = numpyro.sample("noise/scale", dist.HalfNormal(1.0))
    with numpyro.plate("rows", inputs.shape[0]):
        numpyro.sample("y", dist.Normal(jnp.asarray(inputs) @ w, 0.3 + scale), obs=targets)


def save_always(setattr=setattr):
    """Save after every chunk, in store chunks of 5 draws of two chains and 15 steps: a short run has many files.

    What the run needs of memory is not looked up, which takes a good part of the time.

    Args:
        setattr: that of pytest's `monkeypatch`, which takes it back.
    """
    setattr(layout, "MOST_ROWS", 15)
    setattr(layout, "CHUNK_BYTES", 5 * 2 * 4 * 4)
    setattr(disk.Disk, "due", lambda self: True)
    setattr(drive, "require_memory", lambda *_: None)


def infer(engine, directory=None, *, model=scaled, data=DATA, seed=0, **options):
    """`ptx.infer`, quiet."""
    options = {"chunk_size": CHUNK_SIZE, "progress": False, "store": directory} | options
    return ptx.infer(seed, model, data, engine, **options)


def resume(directory, *, model=scaled, **options):
    """`ptx.resume`, quiet."""
    return ptx.resume(directory, model, **({"chunk_size": CHUNK_SIZE, "progress": False} | options))


def go_on(directory, engine):
    """Resume a run that was killed; one that was killed before its first save begins."""
    return resume(directory) if store.read.exists(Path(directory)) else infer(engine, directory)


def values(posterior):
    """Every number of a run by kind and name, in memory."""
    kinds = {"draws": posterior.draws, "statistics": posterior.statistics, "history": posterior.history}
    return {
        (kind, name): np.asarray(array) for kind, arrays in kinds.items() for name, array in arrays.items()
    }


def require_same(one, other):
    """Bit-identical draws, statistics and history."""
    assert one.keys() == other.keys()
    for name, array in one.items():
        assert array.dtype == other[name].dtype, name
        assert array.tobytes() == other[name].tobytes(), name
        assert array.shape == other[name].shape, name


def tree(directory, below=layout.DRAWS):
    """The bytes of every file, by path."""
    return {
        os.path.relpath(path, directory): path.read_bytes()
        for path in sorted((Path(directory) / below).rglob("*"))
        if path.is_file()
    }


@contextmanager
def signalled(step, number, times=1):
    """Within it, runs get a signal as soon as they have taken `step` steps, `times` times over."""
    add, sent = disk.Disk.add, []

    def counted(self, positions, history, count):
        add(self, positions, history, count)
        if self.num_steps >= step and not sent:
            sent.append(step)
            for _ in range(times):
                os.kill(os.getpid(), number)

    disk.Disk.add = counted
    try:
        yield
    finally:
        disk.Disk.add = add
