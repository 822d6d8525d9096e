"""Functions that code only passes to JAX as callbacks for the client; they are not part of the program.

In `jax.debug.callback(note, x)`, the trace loads `note` but does not look inside it, so the code and the reads of
`note` do not affect the program. This also holds for a lambda in that position, and for a function that is defined in
the code and used only in such positions.
"""

import dis
from collections.abc import Callable
from types import CodeType, FunctionType, ModuleType
from typing import NamedTuple

from jitclient.capture.user_code.bytecode import (
    ATTRIBUTE_READS,
    GLOBAL_READS,
    GLOBAL_WRITES,
    instructions,
    reads_whole,
    refs_of,
)

_CALL_BACK = {
    ("jax._src.debugging", "debug_callback"),
    ("jax._src.callback", "io_callback"),
    ("jax._src.callback", "pure_callback"),
}
_WORDS = frozenset({"callback", "io_callback", "pure_callback"})
_NO_VALUE = frozenset({"PUSH_NULL", "NOP", "RESUME", "COPY_FREE_VARS", "MAKE_CELL"})
_STORES = frozenset({"STORE_FAST", "STORE_DEREF"})
_MAKES = frozenset({"MAKE_FUNCTION", "SET_FUNCTION_ATTRIBUTE"})


class CallbackOnly(NamedTuple):
    """Names that a function and its nested code use only as callbacks: globals, and variables of its closure."""

    names: frozenset[str] = frozenset()
    free: frozenset[str] = frozenset()


def callback_only(func: FunctionType) -> CallbackOnly:
    """Return the names that a function uses only as callbacks."""
    code = func.__code__
    if _WORDS.isdisjoint(refs_of(code).words) or reads_whole(refs_of(code), func.__globals__):
        return CallbackOnly()

    def calls_back(chain: tuple[str, ...]) -> bool:
        found = func.__globals__.get(chain[0])
        for name in chain[1:]:
            found = getattr(found, name, None) if isinstance(found, ModuleType) else None
        return (getattr(found, "__module__", None), getattr(found, "__name__", None)) in _CALL_BACK

    uses = _Uses(code, calls_back)
    others = uses.others
    return CallbackOnly(
        frozenset(name for kind, name in uses.handed - others if kind == "global"),
        frozenset(name for kind, name in uses.handed - others if kind == "variable" and name in code.co_freevars),
    )


_Name = tuple[str, str]
"""Kind of name ("global" or "variable"), and the name."""


class _Uses:
    """Names that code passes as callbacks, and names that it uses in other ways."""

    def __init__(self, code: CodeType, calls_back: Callable[[tuple[str, ...]], bool]) -> None:
        self.handed: set[_Name] = set()
        self.others: set[_Name] = set()
        self._calls_back = calls_back
        self._steps = [step for step in instructions(code) if step.opname not in _NO_VALUE]
        self._made: dict[CodeType, str | None] = {}  # code of a function -> the only variable that holds it
        self._stored: dict[str, int] = {}
        for at, step in enumerate(self._steps):
            self._look(at, step)
        inner = {made: _Uses(made, calls_back) for made in code.co_consts if isinstance(made, CodeType)}
        self._resolve(inner, {("variable", name) for name in code.co_varnames + code.co_cellvars})

    def _look(self, at: int, step: dis.Instruction) -> None:
        name = step.opname
        if name in GLOBAL_READS:
            self._note(at, ("global", step.argval))
        elif name in GLOBAL_WRITES:
            self.others.add(("global", step.argval))
        elif name in _STORES:
            self._stored[step.argval] = self._stored.get(step.argval, 0) + 1
        elif name == "LOAD_CONST" and isinstance(step.argval, CodeType):
            self._note_function(at, step.argval)
        elif name.startswith(("LOAD_FAST", "STORE_FAST", "LOAD_DEREF", "DELETE_", "LOAD_CLASSDEREF")):
            names = step.argval if type(step.argval) is tuple else (step.argval,)
            for position, variable in enumerate(names):
                if name.startswith("LOAD") and not self._builds_closure(at):
                    self._note(at if position == 0 else -1, ("variable", variable))
                elif name.startswith("STORE_FAST") or name.startswith("DELETE"):
                    self.others.add(("variable", variable))

    def _note(self, at: int, name: _Name) -> None:
        is_handed = at > 0 and self._steps[at + 1].opname not in ATTRIBUTE_READS and self._is_first_argument(at)
        (self.handed if is_handed else self.others).add(name)

    def _is_first_argument(self, at: int) -> bool:
        """Return whether the value pushed from `at` on is the first argument of a call to a JAX callback function."""
        chain: list[str] = []
        before = at - 1
        while before >= 0 and self._steps[before].opname in ATTRIBUTE_READS:
            chain.insert(0, self._steps[before].argval)
            before -= 1
        if before < 0 or self._steps[before].opname not in GLOBAL_READS:
            return False
        return self._calls_back((self._steps[before].argval, *chain))

    def _builds_closure(self, at: int) -> bool:
        """Return whether a variable is loaded for the closure of a nested function.

        The uses of the nested function itself count then.
        """
        while self._steps[at].opname.startswith("LOAD_FAST"):
            at += 1
        return self._steps[at].opname == "BUILD_TUPLE" and isinstance(self._steps[at + 1].argval, CodeType)

    def _note_function(self, at: int, code: CodeType) -> None:
        end = at + 1
        while self._steps[end + 1].opname in _MAKES:
            end += 1
        depth, start = 0, end
        # Walk back from the function's last instruction to its first.
        while start >= 0:
            step = self._steps[start]
            depth += dis.stack_effect(step.opcode, step.arg, jump=False)
            if depth == 1:
                break
            start -= 1
        after = self._steps[end + 1]
        if self._is_first_argument(start):
            self._made[code] = ""
        else:
            self._made[code] = after.argval if after.opname in _STORES else None

    def _resolve(self, inner: "dict[CodeType, _Uses]", own: set[_Name]) -> None:
        """Add the uses of nested code. Code that is only passed as a callback contributes its uses as callbacks.

        `own` are the variables of the code itself, which no outer code sees.
        """
        handed = {code for code in inner if self._made.get(code) is not None}
        for _ in inner:  # each pass but the last removes one at least
            others = self.others.union(*(uses.others for code, uses in inner.items() if code not in handed))
            kept = {code for code in handed if self._is_only_handed(code, others)}
            if kept == handed:
                break
            handed = kept
        for code, uses in inner.items():
            (self.handed if code in handed else self.others).update(uses.others)
            self.handed |= uses.handed
        self.handed -= own
        self.others -= own

    def _is_only_handed(self, code: CodeType, others: set[_Name]) -> bool:
        variable = self._made[code]
        return variable == "" or (self._stored.get(variable or "") == 1 and ("variable", variable) not in others)
