"""Conversions between specs and JAX's abstract values. The functions import jax when they are called."""

import functools
from typing import Any

from jitclient.errors import CaptureError, Incompatible
from jitclient.jaxside.context import keeps_64_bits
from jitclient.jaxside.shardings import to_jax
from jitclient.wire.array_transport import KEY_PREFIX, dtype_named, is_key
from jitclient.wire.messages import Spec
from jitclient.wire.shardings import Sharding

KEY_IMPLEMENTATIONS = {"key<fry>": "threefry2x32", "key<rbg>": "rbg", "key<urbg>": "unsafe_rbg"}
"""Names of JAX's PRNG implementations, by the names of their key dtypes."""

WIDE = ("float64", "int64", "uint64", "complex128")
"""Dtypes that new arrays can have only if `jax_enable_x64` is on. Existing arrays keep them when it is off."""


def abstract(spec: Spec) -> Any:
    """Return the abstract array that `jit` traces in place of an array with this spec."""
    import jax

    # A `ShapeDtypeStruct` would lose the 64-bit dtype.
    if is_wider_than_new(spec):
        return aval_of(spec)
    sharding = None if spec.sharding is None else to_jax(spec.sharding)
    return jax.ShapeDtypeStruct(spec.shape, dtype_of(spec), weak_type=spec.weak_type, sharding=sharding)


def is_wider_than_new(spec: Spec) -> bool:
    """Return whether the array has a 64-bit dtype, which new arrays cannot have with the current settings."""
    return spec.dtype in WIDE and not keeps_64_bits()


def aval_of(spec: Spec) -> Any:
    """Return the JAX type of the array. A 64-bit dtype is kept even if `jax_enable_x64` is off."""
    import jax

    place = sharding_of_type(spec.sharding)
    place = place and jax.sharding.NamedSharding(place.mesh.abstract_mesh, place.spec)
    return jax.core.ShapedArray(spec.shape, dtype_of(spec), weak_type=spec.weak_type, sharding=place)


def sharding_of_type(sharding: Sharding | None) -> Any:
    """Return JAX's form of a sharding that is part of the array's type, as it is over explicit mesh axes.

    Return None if the sharding is not part of the type, or if this process lacks the devices.
    """
    if sharding is None or sharding.mesh is None or "Explicit" not in sharding.mesh.types:
        return None
    try:
        return to_jax(sharding)
    except Incompatible:
        return None


def dtype_of(spec: Spec) -> Any:
    """Return the dtype of the array in this process: numpy's, or jax's for PRNG keys."""
    return key_dtype(spec.dtype) if is_key(spec) else dtype_named(spec.dtype)


def spec_of_aval(aval: Any, sharding: Sharding | None = None) -> Spec:
    """Return the spec of a result of a trace, given its abstract value.

    Raises:
        CaptureError: The result is not an array, or is one of `float0` or of keys of the program's own generator: it
            cannot leave the process that made it.
    """
    import jax

    if not isinstance(aval, jax.core.ShapedArray) or aval.dtype == jax.dtypes.float0 or is_key_of_program(aval.dtype):
        raise CaptureError(f"a result has the type {aval}, which cannot be sent to another process")
    return Spec(tuple(aval.shape), str(aval.dtype), bool(getattr(aval, "weak_type", False)), sharding)


def is_key_of_program(dtype: Any) -> bool:
    """Return whether a dtype is that of keys of a generator that is not JAX's, which may have the name of one."""
    name = str(dtype)
    # Equality of such dtypes compares the functions of their generators.
    return name.startswith(KEY_PREFIX) and (name not in KEY_IMPLEMENTATIONS or dtype != key_dtype(name))


@functools.cache
def key_dtype(name: str) -> Any:
    """Return the dtype of typed PRNG keys by its name. Does not initialize a device."""
    import jax

    return jax.eval_shape(lambda: jax.random.key(0, impl=KEY_IMPLEMENTATIONS[name])).dtype
