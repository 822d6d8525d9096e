"""Observation of a trace: the data of installed packages that the trace reads."""

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from inspect import CO_OPTIMIZED
from types import CodeType
from typing import Any

from jitclient.capture.codec.plain import is_plain
from jitclient.capture.manifest.changes import Place, changed_counters, written
from jitclient.capture.manifest.definitions import Tree, bytes_of
from jitclient.capture.manifest.garbage import GarbageRecorder
from jitclient.capture.manifest.hooks import A_DEBUGGER, hook_of_thread
from jitclient.capture.manifest.places import (
    ABSENT,
    CACHE,
    CHANGED_PLACES,
    IMPORTED,
    LOADED,
    OWN,
    is_package,
    plain_name,
    resolve,
)
from jitclient.capture.manifest.reads import ambient_of, functions_below, is_observed, names_read
from jitclient.capture.manifest.state import Digests
from jitclient.capture.manifest.trees import ABSENT_DIGEST, OF_PROCESS, TOO_LARGE, Described, TooLargeError
from jitclient.capture.user_code.bytecode import refs_of

_DEBUGGERS = frozenset({"bdb", "debugpy", "pydevd"})
"""Modules on which debuggers are built. What a user does in one is no read of the trace."""
_HOOKS = "Python's hooks could not be changed"
_MAX_PARTS = 50_000
"""Maximum number of parts to describe for a trace. Most have less than 5,000; describing these takes half a second."""


@dataclass(frozen=True)
class Reads:
    """The data of installed packages that a trace read."""

    names: tuple[str, ...] = ()
    """The names of the data, sorted: "module:path.of.attributes"."""
    state: tuple[bytes, ...] = ()
    """The digest of the data under each name, from before the trace changed it."""
    nonrepeatable: str = ""
    """The name of data because of which the function must be traced in each process.

    Either the trace changed the data and later traces depend on it, such as a random number generator, or the data is
    too large to be compared, or has an address of this process. Empty if there is no such data.
    """
    ambient: str = ""
    """The external input, such as a clock or a file, that code may have read; the daemon's trace shows if it did."""
    unobserved_reason: str = ""
    """The reason why the trace could not be observed, or ""."""


class Observation:
    """The data that the code run so far reads, with its values from when that code first started to run."""

    def __init__(self) -> None:
        self.unobserved_reason = ""
        self._ambient = ""
        self._loaded = frozenset(sys.modules)  # before the trace
        # The ids of all started code; the code lives as long as the traced function, so the ids stay unique.
        self._started: set[int] = set()
        self._before: dict[str, Tree] = {}
        self._held: dict[str, Tree] = {}
        self._described = Described({}, _MAX_PARTS)
        self._code: dict[int, tuple[CodeType, dict[str, Any]]] = {}
        self._at_start: dict[str, Tree] = {}

    def expect(self, names: Iterable[str]) -> None:
        """Record the values of data now: code may change data in another way before the code that reads it starts."""
        loaded = [name for name in names if name.partition(":")[0] in self._loaded and CHANGED_PLACES not in name]
        self._at_start = {name: self._now(name) for name in loaded}

    def hold(self, names: Iterable[str]) -> None:
        """Record attributes of the objects of packages that the traced function has: it may read them."""
        for name in names:
            if is_package(name.partition(":")[0]) and not is_plain(resolve(name)):
                self._held[f"{name}.{OWN}"] = self._now(f"{name}.{OWN}")

    def started(self, code: CodeType, names: dict[str, Any]) -> None:
        """Record the data that `code`, which starts to run with the globals `names`, will read."""
        self._started.add(id(code))
        # The bodies of modules and classes run when something imports them, as doctest does.
        if code.co_flags & CO_OPTIMIZED and str(names.get("__name__")).partition(".")[0] in _DEBUGGERS:
            self.unobserved_reason = f"{A_DEBUGGER} was started during the trace"
        try:
            if not self.unobserved_reason and id(code) not in self._code and is_observed(code, names):
                self._code[id(code)] = code, names
                self._note(code, names)
        except Exception as error:
            self.unobserved_reason = _why("the trace could not be observed", error)

    def _note(self, code: CodeType, names: dict[str, Any]) -> None:
        self._ambient = self._ambient or ambient_of(code, names)
        for name in names_read(code, names) - self._before.keys():
            self._before[name] = self._at_start[name] if name in self._at_start else self._now(name)

    def _now(self, name: str) -> Tree:
        value = resolve(name)
        return ABSENT if value is ABSENT else self._described.tree(value)

    def has_run(self, code: CodeType) -> bool:
        """Return whether code ran; True if that is unknown."""
        return bool(self.unobserved_reason) or id(code) in self._started

    def reads(self) -> Reads:
        """Return the data that the trace read, once the trace has finished."""
        try:
            return Reads(unobserved_reason=self.unobserved_reason) if self.unobserved_reason else self._compared()
        except Exception as error:
            return Reads(unobserved_reason=_why("the data that the trace read could not be described", error))

    def _record_deferred(self) -> None:
        """Record reads that show only when the trace has finished: of imported modules, and of code that did not run.

        JAX stores inner traces, for example by the function that is the body of a loop. A function that is referred to
        and did not run may have a stored trace, so all data that it may read counts.
        """
        for code, names in list(self._code.values()):
            if refs_of(code).imports:
                self._note(code, names)
        for name in list(self._before):
            for function in functions_below(resolve(name)):
                if id(function.__code__) not in self._code:
                    self._code[id(function.__code__)] = function.__code__, function.__globals__
                    self._note(function.__code__, function.__globals__)

    def _compared(self) -> Reads:
        self._record_deferred()
        state: dict[str, bytes] = {}
        nonrepeatable, compared, digests = "", _Compared(), Digests()
        for name, before in sorted({**self._held, **self._before}.items()):
            after = compared.now(name)
            # The trace imported a submodule.
            if before is ABSENT and type(after) is tuple and after[0] == "module":
                continue
            # The trace made this data on first use.
            if before is ABSENT and after is not ABSENT:
                is_empty = digests.under(name, after) == ABSENT_DIGEST
                state[name if is_empty else name + CHANGED_PLACES] = ABSENT_DIGEST
            elif before is ABSENT:
                state[name] = ABSENT_DIGEST
            # A comparison with other processes is impossible.
            elif before == TOO_LARGE:
                nonrepeatable = nonrepeatable or name
            elif name.endswith(CACHE) or compared.is_same(before, after):
                state[name] = digests.under(name, before)
            elif (changing := compared.changes(before, after)) is not None:
                counted = name if name in self._at_start else name + CHANGED_PLACES + written(changing)
                state[counted] = digests.under(counted, before)
            else:
                nonrepeatable = nonrepeatable or name
        if self._ambient.startswith("datetime."):
            nonrepeatable = nonrepeatable or self._ambient
        nonrepeatable = nonrepeatable or next((name for name, value in state.items() if value == OF_PROCESS), "")
        by_name = dict(sorted((self._named(name), value) for name, value in state.items()))
        return Reads(tuple(by_name), tuple(by_name.values()), nonrepeatable, self._ambient)

    def _named(self, name: str) -> str:
        is_loaded = name.partition(":")[0] in self._loaded or plain_name(name).endswith(LOADED)
        return name if is_loaded else IMPORTED + name


class _Compared:
    """Descriptions of data after the trace, and their differences from those before it, each made once."""

    def __init__(self) -> None:
        self._described = Described(max_parts=_MAX_PARTS)
        # By the ids of two descriptions, which live as long as this object.
        self._same: dict[tuple[int, int], bool] = {}
        self._changes: dict[tuple[int, int], list[Place] | None] = {}

    def now(self, name: str) -> Tree:
        value = resolve(name)
        return ABSENT if value is ABSENT else self._described.tree(value)

    def is_same(self, before: Tree, after: Tree) -> bool:
        pair = id(before), id(after)
        if pair not in self._same:
            self._same[pair] = bytes_of(before) == bytes_of(after)
        return self._same[pair]

    def changes(self, before: Tree, after: Tree) -> list[Place] | None:
        """Return the places of counters and caches that differ; None if anything else differs."""
        pair = id(before), id(after)
        if pair not in self._changes:
            self._changes[pair] = changed_counters(before, after)
        return self._changes[pair]


@contextlib.contextmanager
def observed(expected: Iterable[str] = (), held: Iterable[str] = ()) -> Iterator[Observation]:
    """Observe the code that runs on this thread in the `with` block.

    Args:
        expected: names of data that it is expected to read.
        held: names of objects that it has.

    Errors of the observation are recorded in `Observation.unobserved_reason`, and do not disturb that code.
    """
    observation, hook, garbage = Observation(), hook_of_thread(), GarbageRecorder()
    with contextlib.ExitStack() as stack:
        try:
            observation.expect(expected)
            observation.hold(held)
            # The recorder listens for longer than the hook: a collection may begin between any two lines here.
            stack.callback(_end, garbage.stop, observation)
            garbage.start()
            observation.unobserved_reason = hook.add(observation.started)
            if not observation.unobserved_reason:
                stack.callback(_end, lambda: hook.remove(observation.started), observation)
        except Exception as error:
            observation.unobserved_reason = _why(_HOOKS, error)
        yield observation


def _end(stop: Callable[[], str], observation: Observation) -> None:
    """Stop listening. Record the reason if some code may not have been reported."""
    try:
        observation.unobserved_reason = stop() or observation.unobserved_reason
    except Exception as error:
        observation.unobserved_reason = _why(_HOOKS, error)


def _why(what: str, error: Exception) -> str:
    if isinstance(error, TooLargeError):
        return f"the installed packages that it uses have more than {_MAX_PARTS} values that could change it"
    return f"{what}: {type(error).__name__}: {error}"
