"""Callbacks from programs into Python functions, which run in the client process that made the call.

JAX lowers a program together with a list of Python functions, which XLA calls by their positions in the list. The
daemon replaces each function by a slot: a slot sends the arguments to the client of the current run, and waits for the
results of the client's function. Clients receive these functions in the same form as other objects that a trace made
(`jitclient.capture.results`).
"""

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from jitclient.errors import CaptureError
from jitclient.jaxside.avals import spec_of_aval
from jitclient.jaxside.callbacks import compile_arguments, looks_at_shardings
from jitclient.wire.array_transport import HostArray, host_form
from jitclient.wire.messages import Slot
from jitserver.programs import executables

CallClient = Callable[[int, Slot, Sequence[HostArray]], Sequence[HostArray]]
"""Function that calls a slot's function in the client of a run: number, slot and arguments -> results."""

Function = Callable[..., tuple[Any, ...]]

_MAX_IDLE = 4
"""Maximum number of executables of a program that are kept for further runs."""

_EFFECTS = frozenset({"DebugEffect", "OrderedDebugEffect", "IOEffect", "OrderedIOEffect"})
"""JAX's effect types of callbacks, by class name, because they have no public names."""


def check_effects(jaxpr: Any) -> None:
    """Raise CaptureError if a program has effects other than callbacks, which must happen in the client's process."""
    others = sorted(str(effect) for effect in jaxpr.effects if type(effect).__name__ not in _EFFECTS)
    if others:
        raise CaptureError(f"the program has side effects ({', '.join(others)}), which must happen in this process")
    if looks_at_shardings(jaxpr):
        raise CaptureError("the program reports shardings to this process (jax.debug.inspect_array_sharding)")


def slot_of(function: Function) -> Slot:
    """Return the interface that XLA expects of a callback.

    Raises:
        CaptureError: this version of JAX builds such callbacks in an unknown way.
    """
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    holds = {
        name: cell.cell_contents for name, cell in zip(names, getattr(function, "__closure__", None) or (), strict=True)
    }
    if "callback_without_token" in holds:
        return Slot(slot_of(holds["callback_without_token"]).results, takes_token=True)
    if "result_avals" not in holds:
        raise CaptureError(f"the callback {getattr(function, '__qualname__', function)} is of an unknown kind")
    return Slot(tuple(map(spec_of_aval, holds["result_avals"])))


class Executables:
    """The executables of one program with callbacks.

    Each executable serves one run at a time, because its callbacks call the client of that run. A concurrent run, for
    example from within a callback, gets a different executable.

    Args:
        slots: the interfaces that XLA expects of the callbacks.
        lowered: the program, if it is compiled in this process.
        serialized: otherwise, the bytes that `to_bytes` returned.
    """

    def __init__(self, slots: tuple[Slot, ...], lowered: Any = None, serialized: bytes | memoryview = b"") -> None:
        self._slots = slots
        self._lowered = lowered
        self._serialized = bytes(serialized)
        self._lock = threading.Lock()
        self._first = self._new_executable()
        self._idle = [self._first]

    def run(self, call_client: CallClient, *leaves: Any, is_multi_device: bool = False) -> Any:
        """Run the program, and return the results after they are computed and all callbacks have returned.

        An exception in a callback aborts the program, unless the program `is_multi_device`. Such a
        program continues with zeros as the callback's results, and the exception is raised afterwards: other devices
        would wait for the aborted one until XLA kills the process.
        """
        with self._lock:
            one = self._idle.pop() if self._idle else None
        one = one or self._copy_executable()
        state, failed = one.state, list[BaseException]()
        state.call_client, state.failed = call_client, failed if is_multi_device else None
        try:
            results = jax.block_until_ready(one.compiled(*leaves))
            jax.effects_barrier()
            if failed:
                raise RuntimeError(f"a callback failed: {failed[0]}") from failed[0]
            return results
        finally:
            state.call_client = state.failed = None
            with self._lock:
                if len(self._idle) < _MAX_IDLE:
                    self._idle.append(one)

    def to_bytes(self) -> bytes:
        """Return the serialized executable, for `Executables` in any process with the same devices.

        Raises:
            Exception: JAX cannot serialize the executable.
        """
        if not self._serialized:
            self._serialized = executables.to_bytes(self._first.compiled)
            self._lowered = None
        return self._serialized

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the first executable, which is a `jax.stages.Compiled`."""
        return getattr(self._first.compiled, name)

    def _copy_executable(self) -> "_Executable":
        # JAX cannot serialize every executable; in that case, `_new_executable` compiles the program once more.
        with contextlib.suppress(Exception):
            self.to_bytes()
        return self._new_executable()

    def _new_executable(self) -> "_Executable":
        state = _RunState()
        calls = [_Callback(state, number, slot) for number, slot in enumerate(self._slots)]
        if self._serialized:
            return _Executable(executables.from_bytes(self._serialized, calls), state)
        compile_arguments(self._lowered)["host_callbacks"] = calls
        return _Executable(self._lowered.compile(), state)


@dataclasses.dataclass
class _RunState:
    """The state of one executable's run that its callbacks need.

    Attributes:
        call_client: calls the client of the run; None between runs.
        failed: collects exceptions of callbacks, if the program continues after them; None if an exception aborts it.
    """

    call_client: CallClient | None = None
    failed: list[BaseException] | None = None


class _Executable(NamedTuple):
    compiled: jax.stages.Compiled
    # Its callbacks refer to this object only: XLA would keep objects that refer to the executable alive for ever.
    state: _RunState


class _Callback:
    """The function that XLA calls for a slot of one executable."""

    def __init__(self, state: _RunState, number: int, slot: Slot) -> None:
        self._state = state
        self._number = number
        self._slot = slot
        self._forms = list(map(host_form, slot.results))

    def __reduce__(self) -> tuple[Any, ...]:
        # Placeholder: `executables.from_bytes` supplies new callbacks when it loads the executable.
        return int, ()

    def __call__(self, *arguments: Any) -> tuple[Any, ...]:
        call_client, failed = self._state.call_client, self._state.failed
        if call_client is None:
            raise RuntimeError("a callback was called after its run had finished")
        token = arguments[:1] if self._slot.takes_token else ()
        try:
            if failed:
                raise failed[0]
            return (*token, *self._results_of_client(call_client, arguments[len(token) :]))
        except BaseException as error:
            if failed is None:
                raise
            failed.append(error)
            return (*token, *[np.zeros(*form) for form in self._forms])

    def _results_of_client(self, call_client: CallClient, arguments: Sequence[Any]) -> Sequence[HostArray]:
        results = call_client(self._number, self._slot, arguments)
        # Check shapes and dtypes, because XLA would otherwise read beyond the arrays' memory.
        if [(result.shape, result.dtype) for result in results] != self._forms:
            raise TypeError("the client's callback returned arrays of an unexpected shape or dtype")
        return results
