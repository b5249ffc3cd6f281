"""Data in half precision keep their dtype in a stored run."""

import jax.numpy as jnp
import numpy as np
import pytest
from store import runs

import ptx
from ptx import inference

ENGINE = inference.SGLD(num_draws=8, num_warmup=4, num_chains=2, step_size=1e-4, batch_size=5)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16], ids=["bfloat16", "float16"])
def test_inputs_in_half_precision_are_stored_and_read(tmp_path, dtype):
    inputs, targets = runs.DATA
    data = ptx.Data(np.asarray(inputs).astype(dtype), targets)
    in_memory = runs.infer(ENGINE, data=data)
    runs.infer(ENGINE, tmp_path / "run", data=data)
    opened = ptx.open_run(tmp_path / "run", runs.scaled)
    assert opened.target.data.inputs.dtype == dtype
    np.testing.assert_array_equal(np.asarray(opened.target.data.inputs), data.inputs)
    for name, draws in in_memory.draws.items():
        np.testing.assert_array_equal(np.asarray(opened.draws[name]), draws)
    with pytest.raises(ValueError, match="data"):
        runs.infer(ENGINE, tmp_path / "run", data=(np.asarray(data.inputs, np.float32), targets))
