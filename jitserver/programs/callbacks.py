"""Callbacks of programs into Python, which happen in the process that made the call.

JAX lowers a program together with a list of Python functions, which XLA calls by their positions there. The daemon puts
a slot in the place of each: it sends the arguments to the client of the current run, and waits for what the client's
function returns. Clients learn of the functions as of anything that a trace made (`jitclient.capture.results`).
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
"""Has the client of a run call the function of a slot: number, slot and arguments -> what the function returns."""

Function = Callable[..., tuple[Any, ...]]

_MOST_IDLE = 4
"""Executables of a program that wait for a run."""

_EFFECTS = frozenset({"DebugEffect", "OrderedDebugEffect", "IOEffect", "OrderedIOEffect"})
"""Those of callbacks, which have no public names."""


def refuse_others(jaxpr: Any) -> None:
    """Raises CaptureError if a program has effects that must happen in the client's process, but are no callbacks."""
    others = sorted(str(effect) for effect in jaxpr.effects if type(effect).__name__ not in _EFFECTS)
    if others:
        raise CaptureError(f"its program has side effects ({', '.join(others)}), which must happen in this process")
    if looks_at_shardings(jaxpr):
        raise CaptureError("its program tells this process of shardings (jax.debug.inspect_array_sharding)")


def slot_of(function: Function) -> Slot:
    """What XLA expects of a callback, or CaptureError if this version of JAX makes such callbacks in another way."""
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
    """The executables of one program with callbacks. Each is for one run at a time, whose client its callbacks ask: a
    second run, perhaps one that a callback makes, gets another.

    Args:
        slots: what XLA expects of the callbacks.
        lowered: the program, if it is compiled here.
        serialized: otherwise, what `to_bytes` returned.
    """

    def __init__(self, slots: tuple[Slot, ...], lowered: Any = None, serialized: bytes | memoryview = b"") -> None:
        self._slots = slots
        self._lowered = lowered
        self._serialized = bytes(serialized)
        self._lock = threading.Lock()
        self._first = self._made()
        self._idle = [self._first]

    def run(self, ask: Ask, *leaves: Any, is_spread: bool = False) -> Any:
        """The results, once they are there and all callbacks have returned.

        A callback that raises ends the program. One that `is_spread` over several devices goes on with zeros, and the
        exception comes afterwards: the other devices would wait for this one, until XLA ends the process.
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
        """The executable, for `Executables` in any process with the same devices; raises if JAX cannot serialize it."""
        if not self._serialized:
            self._serialized = executables.to_bytes(self._first.compiled)
            self._lowered = None
        return self._serialized

    def __getattr__(self, name: str) -> Any:
        """What `jax.stages.Compiled` says of the program."""
        return getattr(self._first.compiled, name)

    def _another(self) -> "_Executable":
        with contextlib.suppress(Exception):  # JAX cannot serialize every executable: it is compiled once more then
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
    """Whom the callbacks of one executable ask during a run, and what they raised if the program is to go on then."""

    ask: Ask | None = None
    failed: list[BaseException] | None = None


class _Executable(NamedTuple):
    compiled: jax.stages.Compiled
    here: _Here  # its callbacks know only this, as XLA would keep what knows the executable for ever


class _Calls:
    """What XLA calls for a slot of one executable."""

    def __init__(self, here: _Here, number: int, slot: Slot) -> None:
        self._here = here
        self._number = number
        self._slot = slot
        self._forms = list(map(host_form, slot.results))

    def __reduce__(self) -> tuple[Any, ...]:
        return int, ()  # whoever loads an executable gives it new ones

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
        if [(result.shape, result.dtype) for result in results] != self._forms:  # XLA would read other memory
            raise TypeError("a client's callback returned arrays of another shape or type")
        return results
