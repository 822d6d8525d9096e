"""JAX's transfer guard, for arrays of the host that a call sends to the daemon."""

import functools
from collections.abc import Iterable
from typing import Any

from jitclient.jaxside.interop import is_jax_array
from jitclient.jaxside.original_jit import original_jit

OFF = None, "allow"
"""Values of `jax_transfer_guard_host_to_device` with which JAX neither logs transfers to a device nor forbids them."""


def check(values: Iterable[Any]) -> None:
    """Do for each value of the host what the guard does when JAX sends the value to a device: log it, or raise.

    Arrays of JAX's are on a device already.

    Raises:
        jax.errors.JaxRuntimeError: the guard forbids the transfer.
    """
    for value in values:
        if not is_jax_array(value):
            _transfer()(value)


@functools.cache
def _transfer() -> Any:
    return original_jit(lambda value: value)
