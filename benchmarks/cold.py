"""The first draw of NUTS on the digits transformer, for `chains.cold_start` to run in a new process."""


def ptx_draw() -> None:
    """One warm-up step and one draw with ptx."""
    import ptx
    from benchmarks import targets

    engine = ptx.inference.NUTS(num_warmup=1, num_draws=1, num_chains=1, max_tree_depth=3)
    ptx.infer(0, targets.model(), targets.digits(), engine, progress=False)


def numpyro_draw() -> None:
    """The same with `numpyro.infer.MCMC`."""
    import jax
    import jax.numpy as jnp
    import numpyro.infer

    from benchmarks import targets

    data = targets.digits()
    kernel = numpyro.infer.NUTS(targets.model(), max_tree_depth=3)
    mcmc = numpyro.infer.MCMC(kernel, num_warmup=1, num_samples=1, progress_bar=False)
    mcmc.run(jax.random.key(0), jnp.asarray(data.inputs), jnp.asarray(data.targets))
