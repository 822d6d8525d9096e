"""Whether XLA loads stored executables on this processor.

An executable for the CPU names the features of the processor for which XLA compiled. Our keys have them, too, so none
for another processor is found. But XLA's loader may still miss a feature: before jaxlib 0.10.2 that was so on each
processor with AVX-512, because it took preferences of XLA's code generator for features (jax-ml/jax#38445,
openxla/xla#44565). Up to jaxlib 0.12 the loader then logs an error and loads; later versions are to refuse. They refuse
the processor, so nothing more is loaded or stored in this process.
"""

import contextlib
import pickle
from collections.abc import Iterator
from typing import Any

from jitclient.jaxside import internals

_REFUSED, _LISTS = "Target machine feature", " Compile machine features"

_refusal = ""


def refusal() -> str:
    """Return why XLA refuses what is compiled on this processor; empty as long as it has refused nothing."""
    return _refusal


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """Note whether XLA refuses the executable that the block loads because of the processor: then it refuses each."""
    global _refusal
    try:
        yield
    except Exception as error:
        if _REFUSED in str(error):
            why = str(error).partition(_LISTS)[0]
            _refusal = f"XLA refuses stored executables on this processor: {why}"
        raise


def load(data: bytes) -> Any:
    """Load an executable that a daemon of this user has serialized; return a `jax.stages.Compiled` over leaves.

    Raises:
        Exception: the bytes are not an executable that can run here.
    """
    import jax
    from jax.experimental import serialize_executable

    with loading():
        if names_native_functions(data):
            internals.register_native_functions()
        payload, in_tree, out_tree, numbers = pickle.loads(data)
        by_number = {device.id: device for device in jax.devices()}
        devices = [by_number[number] for number in numbers]
        return serialize_executable.deserialize_and_load(payload, in_tree, out_tree, execution_devices=devices)


def names_native_functions(data: bytes) -> bool:
    """Return whether an executable calls functions of LAPACK, or its names cannot be read.

    jax has their addresses from scipy, whose import takes half a second, so programs without them do not pay for it.
    """
    return b"lapack" in data or b"jit_" not in data
