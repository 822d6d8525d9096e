"""A program as bytes, and back: what the disk keeps of it, so that no user code runs when it is needed again."""

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
    """What a caller must know of a program, beside its executable. `settings` are those of the signature."""

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
    """All of a program but its executable."""
    same = {name: getattr(program, name) for name in Facts.__struct_fields__ if name != "settings"}
    return msgspec.msgpack.encode(Facts(settings=settings, **same))


def executable_of(program: Program) -> bytes:
    """The executable.

    Raises:
        ValueError: XLA did not compile it here: what it writes of an executable that it has loaded runs nowhere, on a
            CPU at least ("Function ... not found").
        Exception: it has no form as bytes, for a reason that only JAX knows; that it calls back into Python is one.
    """
    if program.is_found:
        raise ValueError("its executable was loaded, and can be written only where it was compiled")
    payload, in_tree, out_tree = serialize_executable.serialize(program.run)
    return pickle.dumps((payload, in_tree, out_tree, _devices(program.run)))


def loaded(facts: bytes, executable: bytes | memoryview) -> Program:
    """The program of such bytes, which come from our own cache and nowhere else: to load them is to trust them.

    Raises:
        Exception: they make no program here.
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
    """An executable calls LAPACK at addresses that are known only once something was lowered that needs them: one that
    was loaded before that takes the process down.
    """
    jax.jit(jnp.linalg.eigh).lower(jax.ShapeDtypeStruct((2, 2), "float32"))
