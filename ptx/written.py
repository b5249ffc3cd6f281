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
    It does not look through a loop, so the values pass through one, in two halves (`optimization_barrier` is gone by
    the time XLA fuses). Meant for arrays that are small beside what is computed from them: the cost is a copy.
    """
    return _WRITTEN.bind(values)


def _copy(values: Array) -> Array:
    flat = jnp.ravel(values)
    half = -(-flat.size // 2)

    def write(index: Array, out: Array) -> Array:
        begin = index * (flat.size - half)
        part = jax.lax.dynamic_slice(flat, (begin,), (half,))
        return jax.lax.dynamic_update_slice(out, part, (begin,))

    return jax.lax.fori_loop(0, 2, write, jnp.zeros_like(flat)).reshape(values.shape)


# A primitive, and not a function with a custom derivative, for the sake of the way back, which is written too.
_WRITTEN = Primitive("written")
_WRITTEN.def_impl(jax.jit(_copy))
_WRITTEN.def_abstract_eval(lambda values: values)
mlir.register_lowering(_WRITTEN, mlir.lower_fun(_copy, multiple_results=False))


def _transpose(cotangent: Any, _: Any) -> list[Any]:
    return [_WRITTEN.bind(cotangent)]


def _batch(args: Any, dims: Any) -> tuple[Any, Any]:
    return _WRITTEN.bind(args[0]), dims[0]


ad.deflinear2(_WRITTEN, _transpose)
batching.primitive_batchers[_WRITTEN] = _batch
