"""Digests of arrays and of their dtypes."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from jitclient.core.digests import array_digest
from jitclient.jaxside.jaxpr_digest.combining import NotComparableError, combine

_BUILT_IN_KEYS = ("threefry2x32", "rbg", "unsafe_rbg")


def is_array(value: Any) -> bool:
    """Return whether a value is an array of numpy or jax, or a scalar of numpy."""
    import jax

    if isinstance(value, (np.ndarray, np.generic, jax.Array)):
        return True
    # Newer versions of jax wrap literals in classes of their own.
    return type(value).__module__.startswith("jax.") and hasattr(value, "__array__")


def value_digest(array: Any, of_value: Callable[[Any], bytes]) -> bytes:
    """Return the digest of an array's type, its bytes, and its sharding if a user has committed it."""
    import jax

    where = array.sharding if isinstance(array, jax.Array) and array.committed else None
    dtype = dtype_digest(array.dtype)
    if jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jax.random.key_data(array)
    return combine(b"array", _kind_of(array), dtype, of_value(tuple(array.shape)), _bytes_of(array), of_value(where))


def _kind_of(array: Any) -> bytes:
    """Return whether a value is an array or a numpy scalar: some params distinguish them."""
    return b"scalar" if isinstance(array, np.generic) else b"array"


def _bytes_of(array: Any) -> bytes:
    data = np.ascontiguousarray(np.asarray(array))
    if data.dtype.hasobject:
        raise NotComparableError(array)
    return array_digest(data.reshape(-1).view(np.uint8).data)


def dtype_digest(dtype: Any) -> bytes:
    """Return the digest of a dtype, including those of PRNG keys.

    Raises:
        NotComparableError: The dtype is structured, or belongs to keys of another implementation.
    """
    import jax

    if dtype == jax.dtypes.float0:
        return combine(b"float0")
    if isinstance(dtype, np.dtype) and dtype.fields is None:
        scalar = dtype.type
        return combine(b"dtype", *[part.encode() for part in (scalar.__module__, scalar.__qualname__, dtype.str)])
    for name in _BUILT_IN_KEYS:
        # Equality of key dtypes compares the functions of their implementations, not only the names.
        if dtype == _key_dtype(name):
            return combine(b"key", name.encode())
    raise NotComparableError(dtype)


@functools.cache
def _key_dtype(name: str) -> Any:
    import jax

    return jax.eval_shape(lambda: jax.random.key(0, impl=name)).dtype
