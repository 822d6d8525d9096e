"""Converts between specs and JAX's abstract values. Imports jax when it is used."""

import functools
from typing import Any

from jitclient.errors import CaptureError, Incompatible
from jitclient.jaxside.context import keeps_64_bits
from jitclient.jaxside.shardings import to_jax
from jitclient.wire.array_transport import dtype_named, is_key
from jitclient.wire.messages import Spec
from jitclient.wire.shardings import Sharding

KEY_IMPLEMENTATIONS = {"key<fry>": "threefry2x32", "key<rbg>": "rbg", "key<urbg>": "unsafe_rbg"}
"""The names of PRNG implementations in JAX, by the names of their key dtypes."""

WIDE = ("float64", "int64", "uint64", "complex128")
"""The dtypes that new arrays have only if `jax_enable_x64` is on. Existing arrays keep them."""


def abstract(spec: Spec) -> Any:
    """The abstract array that jit traces."""
    import jax

    if is_wider_than_new(spec):  # lost in the other form
        return aval_of(spec)
    sharding = None if spec.sharding is None else to_jax(spec.sharding)
    return jax.ShapeDtypeStruct(spec.shape, dtype_of(spec), weak_type=spec.weak_type, sharding=sharding)


def is_wider_than_new(spec: Spec) -> bool:
    """Whether the array has a dtype that new arrays cannot have with the current settings."""
    return spec.dtype in WIDE and not keeps_64_bits()


def aval_of(spec: Spec) -> Any:
    """The JAX type of the array. 64-bit types stay, even if they are off."""
    import jax

    place = sharding_of_type(spec.sharding)
    place = place and jax.sharding.NamedSharding(place.mesh.abstract_mesh, place.spec)
    return jax.core.ShapedArray(spec.shape, dtype_of(spec), weak_type=spec.weak_type, sharding=place)


def sharding_of_type(sharding: Sharding | None) -> Any:
    """The sharding of an array if it is part of its type, as over explicit axes, and this process has such devices."""
    if sharding is None or sharding.mesh is None or "Explicit" not in sharding.mesh.types:
        return None
    try:
        return to_jax(sharding)
    except Incompatible:
        return None


def dtype_of(spec: Spec) -> Any:
    """The dtype in this process: numpy's, or jax's for keys."""
    return key_dtype(spec.dtype) if is_key(spec) else dtype_named(spec.dtype)


def spec_of_aval(aval: Any, sharding: Sharding | None = None) -> Spec:
    """The spec of what a trace returned.

    Raises:
        CaptureError: it is not an array, or cannot leave the process that made it.
    """
    import jax

    if not isinstance(aval, jax.core.ShapedArray) or aval.dtype == jax.dtypes.float0:
        raise CaptureError(f"a result is a {aval}, which cannot leave the process that makes it")
    return Spec(tuple(aval.shape), str(aval.dtype), bool(getattr(aval, "weak_type", False)), sharding)


@functools.cache
def key_dtype(name: str) -> Any:
    """The dtype of typed PRNG keys by name. Does not initialize a device."""
    import jax

    return jax.eval_shape(lambda: jax.random.key(0, impl=KEY_IMPLEMENTATIONS[name])).dtype
