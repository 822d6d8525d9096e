"""Between our specs and JAX's own words for an array without its value. Imports jax when it is used."""

import functools
from typing import Any

from jitclient.shardings import to_jax
from jitclient.wire.arrays import dtype_named, is_key
from jitclient.wire.messages import Spec
from jitclient.wire.shardings import Sharding

KEY_IMPLEMENTATIONS = {"key<fry>": "threefry2x32", "key<rbg>": "rbg", "key<urbg>": "unsafe_rbg"}
"""JAX's name of the PRNG implementation, by the name of its keys' dtype."""


def abstract(spec: Spec) -> Any:
    """What jit traces in place of the array."""
    import jax

    dtype = key_dtype(spec.dtype) if is_key(spec) else dtype_named(spec.dtype)
    sharding = None if spec.sharding is None else to_jax(spec.sharding)
    return jax.ShapeDtypeStruct(spec.shape, dtype, weak_type=spec.weak_type, sharding=sharding)


def spec_of_aval(aval: Any, sharding: Sharding | None = None) -> Spec:
    """The spec of what a trace returned."""
    return Spec(tuple(aval.shape), str(aval.dtype), bool(getattr(aval, "weak_type", False)), sharding)


@functools.cache
def key_dtype(name: str) -> Any:
    """The dtype of typed PRNG keys, by its name. No device is touched."""
    import jax

    return jax.eval_shape(lambda: jax.random.key(0, impl=KEY_IMPLEMENTATIONS[name])).dtype
