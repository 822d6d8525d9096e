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

Ask = Callable[[int, Slot, Sequence[HostArray]], Sequence[HostArray]]
"""Function that calls a slot's function in the client of a run: number, slot and arguments -> results."""

Function = Callable[..., tuple[Any, ...]]

_MOST_IDLE = 4
"""Maximum number of executables of a program that are kept for further runs."""

_EFFECTS = frozenset({"DebugEffect", "OrderedDebugEffect", "IOEffect", "OrderedIOEffect"})
"""JAX's effect types of callbacks, by class name, because they have no public names."""


def refuse_others(jaxpr: Any) -> None:
    """Raise CaptureError if a program has effects other than callbacks, which must happen in the client's process."""
    others = sorted(str(effect) for effect in jaxpr.effects if type(effect).__name__ not in _EFFECTS)
    if others:
        raise CaptureError(f"its program has side effects ({', '.join(others)}), which must happen in this process")
    if looks_at_shardings(jaxpr):
        raise CaptureError("its program tells this process of shardings (jax.debug.inspect_array_sharding)")


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
        raise CaptureError(f"its callback {getattr(function, '__qualname__', function)} is of an unknown kind")
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
        self._first = self._made()
        self._idle = [self._first]

    def run(self, ask: Ask, *leaves: Any, is_spread: bool = False) -> Any:
        """Run the program, and return the results after they are computed and all callbacks have returned.

        An exception in a callback aborts the program, unless the program `is_spread` over several devices. Such a
        program continues with zeros as the callback's results, and the exception is raised afterwards: other devices
        would wait for the aborted one until XLA kills the process.
        """
        with self._lock:
            one = self._idle.pop() if self._idle else None
        one = one or self._another()
        here, failed = one.here, list[BaseException]()
        here.ask, here.failed = ask, failed if is_spread else None
        try:
            results = jax.block_until_ready(one.compiled(*leaves))
            jax.effects_barrier()
            if failed:
                raise RuntimeError(f"a callback failed: {failed[0]}") from failed[0]
            return results
        finally:
            here.ask = here.failed = None
            with self._lock:
                if len(self._idle) < _MOST_IDLE:
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

    def _another(self) -> "_Executable":
        # JAX cannot serialize every executable; in that case, `_made` compiles the program once more.
        with contextlib.suppress(Exception):
            self.to_bytes()
        return self._made()

    def _made(self) -> "_Executable":
        here = _Here()
        calls = [_Calls(here, number, slot) for number, slot in enumerate(self._slots)]
        if self._serialized:
            return _Executable(executables.from_bytes(self._serialized, calls), here)
        compile_arguments(self._lowered)["host_callbacks"] = calls
        return _Executable(self._lowered.compile(), here)


@dataclasses.dataclass
class _Here:
    """The state of one executable's run that its callbacks need.

    Attributes:
        ask: calls the client of the run; None between runs.
        failed: collects exceptions of callbacks, if the program continues after them; None if an exception aborts it.
    """

    ask: Ask | None = None
    failed: list[BaseException] | None = None


class _Executable(NamedTuple):
    compiled: jax.stages.Compiled
    # Its callbacks refer to this object only: XLA would keep objects that refer to the executable alive for ever.
    here: _Here


class _Calls:
    """The function that XLA calls for a slot of one executable."""

    def __init__(self, here: _Here, number: int, slot: Slot) -> None:
        self._here = here
        self._number = number
        self._slot = slot
        self._forms = list(map(host_form, slot.results))

    def __reduce__(self) -> tuple[Any, ...]:
        # Placeholder: `executables.from_bytes` supplies new callbacks when it loads the executable.
        return int, ()

    def __call__(self, *arguments: Any) -> tuple[Any, ...]:
        ask, failed = self._here.ask, self._here.failed
        if ask is None:
            raise RuntimeError("a callback came after the end of its run")
        token = arguments[:1] if self._slot.takes_token else ()
        try:
            if failed:
                raise failed[0]
            return (*token, *self._asked(ask, arguments[len(token) :]))
        except BaseException as error:
            if failed is None:
                raise
            failed.append(error)
            return (*token, *[np.zeros(*form) for form in self._forms])

    def _asked(self, ask: Ask, arguments: Sequence[Any]) -> Sequence[HostArray]:
        results = ask(self._number, self._slot, arguments)
        # Check shapes and dtypes, because XLA would otherwise read beyond the arrays' memory.
        if [(result.shape, result.dtype) for result in results] != self._forms:
            raise TypeError("a client's callback returned arrays of another shape or type")
        return results
