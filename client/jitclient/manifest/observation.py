"""What one trace reads of installed packages, observed while it runs."""

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any

from jitclient.codec.user_code.bytecode import refs_of
from jitclient.manifest import garbage
from jitclient.manifest.changes import grown, written
from jitclient.manifest.definitions import Tree, bytes_of
from jitclient.manifest.hooks import Hook, hook_of_thread
from jitclient.manifest.places import ABSENT, CACHE, COUNTED, IMPORTED, resolve
from jitclient.manifest.reads import ambient_of, counts, functions_below, names_read
from jitclient.manifest.state import digest_under
from jitclient.manifest.trees import ABSENT_DIGEST, TOO_LARGE, First, Memo, tree_of


@dataclass(frozen=True)
class Reads:
    """What a trace read of installed packages."""

    names: tuple[str, ...] = ()
    """The names of the data, sorted: "module:path.of.attributes"."""
    state: tuple[bytes, ...] = ()
    """The digest of each, from before the trace changed it."""
    drawn: str = ""
    """The name of data that the trace changed and later traces depend on, such as a generator of random numbers, or of
    data that is too large to be compared: the function must be traced in each process.
    """
    ambient: str = ""
    """What code that ran may have read from outside: a clock, a file. The daemon's trace finds out whether it has."""
    unseen: str = ""
    """Why the trace could not be observed."""


class Observation:
    """The data that the code which ran so far reads, with its values from when that code first began to run."""

    def __init__(self) -> None:
        self.unseen = ""
        self._ambient = ""
        self._loaded = frozenset(sys.modules)  # before the trace
        self._started: set[int] = set()  # the ids of all code, which lives as long as the traced function
        self._before: dict[str, Tree] = {}
        self._first: First = {}
        self._code: dict[int, tuple[CodeType, dict[str, Any]]] = {}

    def started(self, code: CodeType, names: dict[str, Any]) -> None:
        """Note what `code`, which begins to run with these globals, will read."""
        self._started.add(id(code))
        try:
            if not self.unseen and id(code) not in self._code and counts(code, names):
                self._code[id(code)] = code, names
                self._note(code, names)
        except Exception as error:
            self.unseen = f"it could not be observed: {type(error).__name__}: {error}"

    def _note(self, code: CodeType, names: dict[str, Any]) -> None:
        memo: Memo = {}
        self._ambient = self._ambient or ambient_of(code, names)
        for name in names_read(code, names) - self._before.keys():
            value = resolve(name)
            self._before[name] = ABSENT if value is ABSENT else tree_of(value, memo, self._first)

    def has_run(self, code: CodeType) -> bool:
        """Whether code ran; True where that is not known."""
        return bool(self.unseen) or id(code) in self._started

    def reads(self) -> Reads:
        """Return what the trace read, once it is over."""
        try:
            return Reads(unseen=self.unseen) if self.unseen else self._compared()
        except Exception as error:
            return Reads(unseen=f"what it read could not be described: {type(error).__name__}: {error}")

    def _note_the_rest(self) -> None:
        """Note what only the end of the trace shows: modules imported by it, and code that JAX did not run again.

        JAX keeps inner traces, by the function that it was given for a loop, say. A function that is named and did not
        run may have such a trace, so all that it may read counts.
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
        self._note_the_rest()
        state: dict[str, bytes] = {}
        drawn, memo = "", Memo()
        for name, before in sorted(self._before.items()):
            now = resolve(name)
            after = ABSENT if now is ABSENT else tree_of(now, memo)
            if before is ABSENT and after is not ABSENT:  # made when it was first needed
                is_empty = digest_under(name, after) == ABSENT_DIGEST
                state[name if is_empty else name + COUNTED] = ABSENT_DIGEST
            elif before is ABSENT:
                continue
            elif before == TOO_LARGE:  # whether it is the same elsewhere cannot be known
                drawn = drawn or name
            elif name.endswith(CACHE) or bytes_of(before) == bytes_of(after):
                state[name] = digest_under(name, before)
            elif (changing := grown(before, after)) is not None:
                counted = name + COUNTED + written(changing)
                state[counted] = digest_under(counted, before)
            else:
                drawn = drawn or name
        told = {self._named(name): value for name, value in state.items()}
        return Reads(tuple(sorted(told)), tuple(told[name] for name in sorted(told)), drawn, self._ambient)

    def _named(self, name: str) -> str:
        return name if name.partition(":")[0] in self._loaded else IMPORTED + name


@contextlib.contextmanager
def observed() -> Iterator[Observation]:
    """Observe what runs on this thread. No failure of ours is raised, and what runs is not disturbed."""
    observation, hook = Observation(), hook_of_thread()
    with contextlib.ExitStack() as stack:
        try:
            observation.unseen = hook.add(observation.started)
            if not observation.unseen:
                stack.callback(_unhook, hook, observation)
            stack.enter_context(garbage.noted())
        except Exception as error:
            observation.unseen = _unchangeable(error)
        yield observation


def _unhook(hook: Hook, observation: Observation) -> None:
    try:
        observation.unseen = hook.remove(observation.started) or observation.unseen
    except Exception as error:
        observation.unseen = _unchangeable(error)


def _unchangeable(error: Exception) -> str:
    return f"Python's hooks could not be changed: {type(error).__name__}: {error}"
