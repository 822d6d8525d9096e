"""Serializes programs, so that loading one from the disk runs no user code."""

import functools
import pickle
from typing import Any

import jax
import jax.numpy as jnp
import msgspec
from jax.experimental import serialize_executable

from jitclient.codec import values
from jitclient.wire.decoders import decoded
from jitclient.wire.messages import Escape, Message, Spec, Warned
from jitserver.engine import device_arrays
from jitserver.engine.program import Program


class Facts(Message):
    """A program without its executable. `settings` are those of the signature."""

    specs: tuple[Spec, ...]
    results: tuple[Spec, ...]
    tree: bytes
    donated: tuple[int, ...]
    may_raise: bool
    settings: tuple[tuple[str, bytes], ...]
    code_bytes: int
    warnings: tuple[Warned, ...]
    escapes: tuple[Escape, ...] = ()
    made: bytes = b""


def facts_of(program: Program, settings: tuple[tuple[str, bytes], ...]) -> bytes:
    """Serializes a program without its executable."""
    same = {name: getattr(program, name) for name in Facts.__struct_fields__ if name != "settings"}
    return msgspec.msgpack.encode(Facts(settings=settings, **same))


def executable_of(program: Program) -> bytes:
    """Serializes the executable.

    Raises:
        ValueError: XLA did not compile it in this process. On a CPU, an executable that was serialized after loading
            cannot run ("Function ... not found").
        Exception: JAX cannot serialize it, for instance because of callbacks.
    """
    if program.is_found:
        raise ValueError("its executable was loaded, and can be serialized only where it was compiled")
    payload, in_tree, out_tree = serialize_executable.serialize(program.run)
    return pickle.dumps((payload, in_tree, out_tree, _devices(program.run)))


def loaded(facts: bytes, executable: bytes | memoryview) -> Program:
    """Loads a serialized program. The bytes must come from our own cache, as loading can run code in them.

    Raises:
        Exception: they are not a program that can run here.
    """
    told = decoded(facts, Facts)
    _ready_for_native_calls()
    payload, in_tree, out_tree, numbers = pickle.loads(executable)
    devices = {device.id: device for device in jax.devices()}
    run = serialize_executable.deserialize_and_load(
        payload, in_tree, out_tree, execution_devices=[devices[number] for number in numbers]
    )
    same = {name: getattr(told, name) for name in Facts.__struct_fields__ if name != "settings"}
    return Program(
        run=run,
        landings=tuple(map(device_arrays.landing, told.specs)),
        settings=tuple((name, values.decode(value, values.nothing)) for name, value in told.settings),
        loaded=None,
        seconds={},
        is_found=True,
        **same,
    )


def _devices(compiled: Any) -> list[int]:
    """The devices of an executable, in its own order."""
    for sharding in jax.tree.leaves((compiled.input_shardings, compiled.output_shardings)):
        if isinstance(sharding, jax.sharding.NamedSharding):
            return [device.id for device in sharding.mesh.devices.flat]
        return [device.id for device in sharding.device_set]
    return [jax.devices()[0].id]


@functools.cache
def _ready_for_native_calls() -> None:
    """Makes JAX register the addresses of LAPACK, which it does when it first lowers something that needs them. An
    executable that was loaded before would crash the process.
    """
    jax.jit(jnp.linalg.eigh).lower(jax.ShapeDtypeStruct((2, 2), "float32"))
