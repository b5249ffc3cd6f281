"""A barrier that XLA keeps: values that are computed once, into memory, however many uses they have."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, Float


def written(values: Float[Array, "..."]) -> Float[Array, "..."]:
    """The values themselves; derivatives that pass here, forwards and backwards, are written too.

    On CPU XLA fuses what is cheap into each of its uses, and a sum over the keys counts as cheap: fused into the loop
    over (query, key) it is taken again for every key. It also draws a guide's normals anew in each use of each site.
    It does not look through a loop, so the values pass through one, which swaps their first two entries, twice
    (`optimization_barrier` is gone by the time XLA fuses). The cost is that of writing the values to memory.
    """
    return _WRITTEN.bind(values)


def _through_a_loop(values: Array) -> Array:
    if not values.size:
        return values

    def swap(_: Array, out: Array) -> Array:
        return out.at[:2].set(out[:2][::-1])

    return jax.lax.fori_loop(0, 2, swap, jnp.ravel(values)).reshape(values.shape)


# A primitive, and not a function with a custom derivative, for the sake of the way back, which is written too.
_WRITTEN = Primitive("written")
_WRITTEN.def_impl(jax.jit(_through_a_loop))
_WRITTEN.def_abstract_eval(lambda values: values)
mlir.register_lowering(_WRITTEN, mlir.lower_fun(_through_a_loop, multiple_results=False))


def _transpose(cotangent: Any, _: Any) -> list[Any]:
    return [_WRITTEN.bind(cotangent)]


def _batch(args: Any, dims: Any) -> tuple[Any, Any]:
    return _WRITTEN.bind(args[0]), dims[0]


ad.deflinear2(_WRITTEN, _transpose)
batching.primitive_batchers[_WRITTEN] = _batch
