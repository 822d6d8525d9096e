"""Serialization of executables. Load bytes from jitserver's own cache only, because loading can run code."""

import contextlib
import functools
import io
import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import jax
from jax.experimental import serialize_executable

from jitclient.core.digests import digest
from jitclient.jaxside import compilation_cache, cpu_executables, internals
from jitserver.programs import context
from jitserver.programs.devices.backend import backend
from jitserver.store.deadline import Deadlines
from jitserver.store.share.lab import Lab

_Result = TypeVar("_Result")

_MIN_SECONDS = 0.3
"""Minimum seconds of a compilation that is kept by its text.

All programs are in the daemon's own cache already, so this is for compilations that are worth finding by text alone.
"""


_STORAGE_SECONDS = 2.0
"""Seconds for which a compilation waits for its storage."""


_LONG_TEXT_BYTES = 64 << 10
"""Size of a program's text from which on the lab's cache is asked for its compilation."""


def keep_compilations(directory: Path, max_bytes: int, lab: Lab | None = None) -> None:
    """Make JAX find and keep long compilations by their text in a directory of at most `max_bytes` bytes.

    Args:
        directory: the directory.
        max_bytes: the limit.
        lab: the lab's cache, if there is one.
    """
    global _compilations
    _compilations = _Compilations(directory, _MIN_SECONDS, max_bytes, lab)
    compilation_cache.use(_compilations, by_text=True)


@contextlib.contextmanager
def compiling(text: str) -> Iterator[None]:
    """Find the compilation of a program in the lab's cache, and keep it there, within a block that compiles it."""
    if _compilations is None or len(text) < _LONG_TEXT_BYTES:
        yield
        return
    with _compilations.asking_lab():
        yield


def found_key() -> str:
    """Return the key under which this thread has found its latest compilation; empty if it has found none."""
    return "" if _compilations is None else _compilations.thread_state.key


class _Asking(threading.local):
    key = ""
    asks_lab = False


class _Compilations(compilation_cache.CompilationCache):
    """Cache of compilations that counts as empty while its storage hangs or fails."""

    def __init__(self, directory: Path, min_seconds: float, max_bytes: int, lab: Lab | None) -> None:
        super().__init__(directory, min_seconds, max_bytes)
        self._deadlines = Deadlines()
        self._lab = lab
        self.thread_state = _Asking()

    @contextlib.contextmanager
    def asking_lab(self) -> Iterator[None]:
        """Ask the lab's cache, too, within a block of this thread."""
        self.thread_state.asks_lab = True
        try:
            yield
        finally:
            self.thread_state.asks_lab = False

    def get(self, key: str) -> tuple[bytes, float] | None:
        found = self._within_deadline(lambda: super(_Compilations, self).get(key))
        if found is None and self._lab is not None and self.thread_state.asks_lab:
            found = self._lab.share.get_compilation(_of_machine(key))
            if found is not None:
                self._put_here(key, *found)
        if found is not None:
            self.thread_state.key = key
        return found

    def mark_used(self, key: str) -> None:
        self._within_deadline(lambda: super(_Compilations, self).mark_used(key))

    def put(self, key: str, executable: bytes, seconds: float) -> None:
        self._put_here(key, executable, seconds)
        if self._lab is not None and self.thread_state.asks_lab:
            upload = functools.partial(self._lab.share.put_compilation, _of_machine(key), executable, seconds)
            self._lab.uploads.add(f"compilation {key}", upload)

    def _put_here(self, key: str, executable: bytes, seconds: float) -> None:
        self._within_deadline(lambda: super(_Compilations, self).put(key, executable, seconds))

    def _within_deadline(self, act: Callable[[], _Result]) -> _Result | None:
        try:
            return self._deadlines.run(act, _STORAGE_SECONDS)
        except OSError:
            return None


def _of_machine(key: str) -> str:
    """Return a key of JAX's for machines of this kind only: JAX's has no features of the processor."""
    return digest(repr((key, sorted({**context.of_process(), **context.of_machine()}.items()))).encode()).hex()


_compilations: _Compilations | None = None
"""The cache of compilations that this process's jax uses."""


def to_bytes(compiled: jax.stages.Compiled) -> bytes:
    """Serialize an executable that XLA compiled in this process.

    On a CPU, an executable that was serialized after loading cannot run ("Function ... not found").

    Raises:
        Exception: JAX cannot serialize the executable.
    """
    if cpu_executables.refusal():
        raise ValueError(cpu_executables.refusal())
    payload, in_tree, out_tree = serialize_executable.serialize(compiled)
    return pickle.dumps((payload, in_tree, out_tree, _devices(compiled)))


def found_to_bytes(compiled: Any, key: str) -> bytes | None:
    """Serialize an executable that was found by its text under a key, from the bytes that it was loaded from.

    Returns:
        The bytes, which `from_bytes` reads; None if the cache does not have the compilation any more.

    Raises:
        Exception: JAX cannot serialize the executable.
    """
    found = None if _compilations is None else _compilations.get(key)
    if found is None:
        return None
    # As in `serialize_executable.serialize`, which refuses closed-over constants, too.
    if compiled._params.const_args:
        raise ValueError("the executable has constants as arguments")
    arguments, in_tree = jax.tree.flatten(compiled.args_info)
    file = io.BytesIO()
    pickler: Any = _FoundPickler(file)
    pickler.executable = found[0]
    pickler.dump((compiled._executable._unloaded_executable, arguments, compiled._no_kwargs))
    return pickle.dumps((file.getvalue(), in_tree, compiled.out_tree, _devices(compiled)))


def from_bytes(data: bytes | memoryview, callbacks: Sequence[Callable[..., Any]] = ()) -> jax.stages.Compiled:
    """Load an executable, and supply the Python functions that it calls.

    The number of functions is checked, because too few of them would crash the process during a run.

    Raises:
        Exception: the bytes are not an executable that can run here, or it calls a different number of functions.
    """
    with cpu_executables.loading():
        return _from_bytes(data, callbacks)


def _from_bytes(data: bytes | memoryview, callbacks: Sequence[Callable[..., Any]]) -> jax.stages.Compiled:
    if backend().runs_on_host:
        internals.register_native_functions()
    payload, in_tree, out_tree, numbers = pickle.loads(data)
    by_number = {device.id: device for device in jax.devices()}
    devices = [by_number[number] for number in numbers]
    if not callbacks:
        compiled: jax.stages.Compiled = serialize_executable.deserialize_and_load(
            payload, in_tree, out_tree, execution_devices=devices
        )
        _check_count(getattr(compiled._executable, "_unloaded_executable", None), callbacks)
        return compiled
    unpickler: Any = _Unpickler(io.BytesIO(payload), devices[0].client, devices)
    unpickler.callbacks = list(callbacks)
    unloaded, arguments, no_kwargs = unpickler.load()
    _check_count(unloaded, callbacks)
    return jax.stages.Compiled(unloaded.load(), [], in_tree.unflatten(arguments), out_tree, no_kwargs=no_kwargs)


def _check_count(unloaded: Any, callbacks: Sequence[Callable[..., Any]]) -> None:
    count = len(getattr(unloaded, "host_callbacks", callbacks))
    if count != len(callbacks):
        raise ValueError(f"the executable calls {count} functions, expected {len(callbacks)}")


_Pickler: Any
_UnpicklerWithoutCallbacks: Any
_Pickler, _UnpicklerWithoutCallbacks = internals.picklers()


class _FoundPickler(_Pickler):  # type: ignore[misc]
    """JAX's pickler, with given bytes in the place of those that XLA would write of the loaded executable."""

    executable: bytes

    def persistent_id(self, obj: Any) -> Any:
        found = super().persistent_id(obj)
        return ("exec", self.executable) if found is not None and found[0] == "exec" else found


class _Unpickler(_UnpicklerWithoutCallbacks):  # type: ignore[misc]
    """Unpickler that also reads executables with callbacks."""

    callbacks: list[Callable[..., Any]]

    def persistent_load(self, pid: Any) -> Any:
        if pid[0] != "exec":
            return super().persistent_load(pid)
        return self.backend.deserialize_executable(
            pid[1], executable_devices=self.execution_devices, host_callbacks=self.callbacks
        )


def _devices(compiled: jax.stages.Compiled) -> list[int]:
    """Return the ids of an executable's devices, in the executable's order, which the sets of its shardings lack."""
    executable: Any = compiled.runtime_executable()
    return [device.id for device in executable.local_devices()]
