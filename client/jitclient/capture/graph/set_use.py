"""Detection, in bytecode, of uses that observe the order of a set.

The order of a set of strings depends on PYTHONHASHSEED, and that of most other objects on their addresses, so it
differs between processes. Code that uses a set only for its size, membership tests, comparisons or `sorted` does not
observe the order. A single pass over each code object follows values that may be sets: from where they are made or
read, along the stack and through the names that they are bound to, to where they are used. Any use that the pass does
not understand counts as an observation.
"""

import dis
from collections.abc import Callable
from types import CodeType
from typing import Any

from jitclient.capture.user_code.bytecode import nested

SEEDED, UNKNOWN = "seeded", "unknown"
"""Kinds of sets: those whose order depends on PYTHONHASHSEED, and those whose order has an unknown cause."""

# The kind of a dictionary view: it has an order of its own, but operators make sets of it.
_VIEW = "view"

Order = Callable[[frozenset[Any]], str | None]
"""A function that gives the kind of a constant set; None if its order is the same in every process."""


Sets = dict[str | tuple[CodeType, str], str]
"""Names that may be bound to sets, with the kind of set. A local variable's name is a pair with its code object."""


def bind(sets: Sets, name: str | tuple[CodeType, str], kind: Any) -> None:
    """Record the kind of set that a name may be bound to; UNKNOWN takes precedence over other kinds."""
    if kind in (SEEDED, UNKNOWN, _VIEW) and sets.get(name) != UNKNOWN:
        sets[name] = kind


def uses_of_order(codes: list[CodeType], sets: Sets, order_of: Order) -> list[tuple[str, str]]:
    """Return the kind of each set whose order these code objects may observe, with the name of the observing code."""
    everything = [inner for code in codes for inner in nested(code)]
    while True:
        before = dict(sets)
        read = [code for code in everything if _deals_with_sets(code) or _reads(code, sets)]
        found = [(kind, code.co_name) for code in read for kind in _Pass(code, sets, order_of).run()]
        if sets == before:
            return found


# The keys are ids. The values keep the code alive, so that no other code can get the same id.
_known: dict[int, tuple[CodeType, bool]] = {}


def _deals_with_sets(code: CodeType) -> bool:
    """Return whether code makes sets, on its own or from dictionaries; computed once per code object."""
    if id(code) not in _known:
        names = {*code.co_names} & {*_MAKERS, "keys", "items"}
        constants = any(map(_is_of_sets, code.co_consts))
        ops = {dis.opmap[op] for op in ("BUILD_SET", "SET_ADD", "SET_UPDATE")} & {*code.co_code[::2]}
        _known[id(code)] = code, bool(names or constants or ops)
    return _known[id(code)][1]


def _is_of_sets(constant: Any) -> bool:
    if type(constant) is tuple:
        return any(map(_is_of_sets, constant))
    return type(constant) is frozenset or getattr(constant, "co_name", "") == "<setcomp>"


def _reads(code: CodeType, sets: Sets) -> bool:
    is_read = not sets.keys().isdisjoint((*code.co_names, *code.co_freevars, *code.co_cellvars))
    return is_read or any(name[0] is code for name in sets)


_INSENSITIVE = frozenset({"len", "sorted", "isinstance", "issubclass", "bool", "any", "all"})
_MAKERS = frozenset({"set", "frozenset"})
_TESTS = frozenset({"issubset", "issuperset", "isdisjoint"})
_CHANGES = frozenset({"add", "discard", "remove", "clear", "update", "difference_update", "intersection_update"})
_ALGEBRA = frozenset({"union", "intersection", "difference", "symmetric_difference", "copy"})
_OPERATORS = ("&", "|", "-", "^")
_SCOPED = ("GLOBAL", "NAME", "DEREF", "CLASSDEREF", "FROM_DICT_OR_GLOBALS", "FROM_DICT_OR_DEREF")
_TO_TRUTH = {"COMPARE_OP": 2, "CONTAINS_OP": 2, "IS_OP": 2, "UNARY_NOT": 1, "TO_BOOL": 1, "POP_TOP": 1}
_SKIPPED = frozenset({"CACHE", "EXTENDED_ARG", "PRECALL", "RESUME", "NOP", "NOT_TAKEN", "COPY_FREE_VARS", "MAKE_CELL"})
_ENDS = frozenset({"RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE", "JUMP_FORWARD"})

_POPS: dict[str, Callable[[int], int]] = {
    **dict.fromkeys(("BUILD_TUPLE", "BUILD_LIST", "BUILD_STRING", "BUILD_SLICE", "RAISE_VARARGS"), lambda arg: arg),
    **dict.fromkeys(("FOR_ITER", "JUMP_BACKWARD", "IMPORT_FROM", "PUSH_NULL", "LOAD_CLOSURE"), lambda arg: 0),
    **dict.fromkeys(("LOAD_ASSERTION_ERROR", "LOAD_BUILD_CLASS", "LOAD_SMALL_INT", "RETURN_CONST"), lambda arg: 0),
    **dict.fromkeys(("GET_ITER", "CONVERT_VALUE", "FORMAT_SIMPLE", "LIST_APPEND", "LIST_EXTEND"), lambda arg: 1),
    **dict.fromkeys(("DICT_UPDATE", "DICT_MERGE", "UNARY_NEGATIVE", "UNARY_INVERT", "DELETE_ATTR"), lambda arg: 1),
    **dict.fromkeys(("RETURN_VALUE", "YIELD_VALUE", "UNPACK_SEQUENCE", "LIST_TO_TUPLE"), lambda arg: 1),
    **dict.fromkeys(("CALL_INTRINSIC_1", "POP_ITER"), lambda arg: 1),
    **dict.fromkeys(("BINARY_SUBSCR", "FORMAT_WITH_SPEC", "MAP_ADD", "DELETE_SUBSCR"), lambda arg: 2),
    **dict.fromkeys(("IMPORT_NAME", "CALL_INTRINSIC_2", "SET_FUNCTION_ATTRIBUTE"), lambda arg: 2),
    **dict.fromkeys(("STORE_SUBSCR", "BINARY_SLICE"), lambda arg: 3),
    "BUILD_MAP": lambda arg: 2 * arg,
    "BUILD_CONST_KEY_MAP": lambda arg: arg + 1,
    "FORMAT_VALUE": lambda arg: 2 if arg & 4 else 1,
    "MAKE_FUNCTION": lambda arg: 1 + arg.bit_count(),
}
"""The number of values that an instruction takes from the stack. An instruction without an entry may take all."""

_PLAIN = "plain"  # a constant without identity
# A set that is empty so far, or that has only numbers: its order is the same in every process.
_EMPTY = "empty"
_COMPREHENSION = ("call", "comprehension")


class _Pass:
    """A pass over a code object. A value on the stack is a kind of set, a callee (a tuple), or None."""

    def __init__(self, code: CodeType, sets: Sets, order_of: Order) -> None:
        self._code = code
        self._sets = sets
        self._order_of = order_of
        self._stack: list[Any] = []
        self._found: list[str] = []
        self._has_keywords = False

    def run(self) -> list[str]:
        """Return the kinds of the sets whose order the code observes."""
        steps = [step for step in dis.get_instructions(self._code) if step.opname not in _SKIPPED]
        for at, step in enumerate(steps):
            known = len(self._found)
            self._do(step)
            # The trace in the caller's process raises the same error, in that process's own order.
            if len(self._found) > known and _leads_to_raise(steps, at):
                del self._found[known:]
        return self._found

    def _do(self, step: dis.Instruction) -> None:
        op, value = step.opname, step.argval
        verb, _, scope = op.partition("_")
        if op.startswith("LOAD_FAST"):
            for name in value if isinstance(value, tuple) else (value,):
                self._stack.append(self._sets.get((self._code, name)))
        elif verb == "LOAD" and scope in _SCOPED:
            self._load(step)
        elif op == "LOAD_CONST":
            self._stack.append(self._constant(value))
        elif op in ("LOAD_ATTR", "LOAD_METHOD"):
            self._attribute(step)
        elif op.startswith("STORE_FAST"):
            self._store_fast(op, value if isinstance(value, tuple) else (value,))
        elif verb == "STORE" and scope in _SCOPED:
            bind(self._sets, value, self._pop())
        elif op == "STORE_ATTR":
            self._pop()
            bind(self._sets, value, self._pop())
        elif op in ("KW_NAMES", "CALL_KW", "CALL"):
            self._call(step)
        elif op == "BINARY_OP":
            self._operate(step)
        elif op in ("BUILD_SET", "SET_UPDATE", "SET_ADD"):
            self._build_set(op, step.arg or 0)
        elif op in ("SWAP", "COPY"):
            self._shuffle(op, step.arg or 1)
        elif op in _TO_TRUTH:
            self._pop_many(_TO_TRUTH[op])
            self._stack += [] if op == "POP_TOP" else [None]
        elif op == "RETURN_VALUE" and self._code.co_name == "<setcomp>":
            self._stack = []
        elif op == "END_FOR":
            # This pass follows the order of the code, in which the loop's body has already taken the loop's value.
            self._pop_many(-dis.stack_effect(step.opcode) - 1)
        else:
            self._other(step)

    # ---- the stack

    def _pop(self) -> Any:
        return self._stack.pop() if self._stack else None

    def _pop_many(self, count: int) -> list[Any]:
        return [self._pop() for _ in range(count)][::-1]

    def _shuffle(self, op: str, depth: int) -> None:
        self._stack = [None] * (depth - len(self._stack)) + self._stack
        if op == "COPY":
            self._stack.append(self._stack[-depth])
        else:
            self._stack[-depth], self._stack[-1] = self._stack[-1], self._stack[-depth]

    def _observe(self, *values: Any) -> None:
        self._found += [value for value in values if value in (SEEDED, UNKNOWN)]
        self._found += [UNKNOWN for value in values if type(value) is tuple and value[1] in _MAKERS]

    def _other(self, step: dis.Instruction) -> None:
        op, arg = step.opname, step.arg or 0
        if "JUMP_IF" in op:
            # A set as a condition shows only whether it is empty.
            self._pop()
            self._forget()
            return
        n_operands = _POPS[op](arg) if op in _POPS else None
        effect = dis.stack_effect(step.opcode, step.arg, jump=False)
        if n_operands is None:
            self._forget()
            self._pop_many(-effect)
            self._stack += [None] * effect
            return
        values = self._pop_many(n_operands)
        types = [value for value in values if type(value) is tuple]
        if op in ("BUILD_TUPLE", "BINARY_SUBSCR", "MAKE_FUNCTION", "SET_FUNCTION_ATTRIBUTE"):
            self._observe(*(value for value in values if type(value) is not tuple))
            # Annotations of a function may name types of sets.
            is_function = op.endswith(("FUNCTION", "FUNCTION_ATTRIBUTE"))
            self._stack.append(
                _COMPREHENSION if _COMPREHENSION in types else types[0] if types and not is_function else None
            )
            return
        self._observe(*values)
        self._stack += [None] * (effect + n_operands)
        if op in _ENDS:
            self._forget()
            self._stack = []

    def _forget(self) -> None:
        self._observe(*self._stack)
        self._stack = [None] * len(self._stack)

    # ---- names

    def _load(self, step: dis.Instruction) -> None:
        name = str(step.argval)
        kind: Any = self._sets.get(name)
        if kind is None and name in _INSENSITIVE | _MAKERS:
            kind = ("call", name)
        has_null = step.opname == "LOAD_GLOBAL" and (step.arg or 0) & 1
        # `_call` searches both stack positions for the callee.
        self._stack += [kind, None] if has_null else [kind]

    def _store_fast(self, op: str, names: tuple[str, ...]) -> None:
        first, *second = ((self._code, name) for name in names)
        bind(self._sets, first, self._pop())
        for local in second:
            if op == "STORE_FAST_STORE_FAST":
                bind(self._sets, local, self._pop())
            else:
                self._stack.append(self._sets.get(local))

    def _attribute(self, step: dis.Instruction) -> None:
        owner, name = self._pop(), step.argval
        value: Any = self._sets.get(name)
        if owner in (SEEDED, UNKNOWN, _EMPTY):
            if name not in _TESTS | _CHANGES | _ALGEBRA:
                self._observe(owner)
            value = ("method", name, owner)
        elif value is None and name in ("keys", "items"):
            value = ("call", "keys")
        elif type(owner) is tuple:  # `set.union`, `functools.partial(set, ...)`
            self._observe(owner)
        is_method = step.opname == "LOAD_METHOD" or "NULL" in step.argrepr
        self._stack += [value, None] if is_method else [value]

    def _constant(self, value: Any) -> Any:
        if isinstance(value, CodeType):
            return _COMPREHENSION if value.co_name == "<setcomp>" else None
        if type(value) is frozenset:
            return self._order_of(value) or _EMPTY
        if type(value) is tuple:
            self._observe(*map(self._constant, value))
        return _PLAIN if type(value) in (str, bytes, int, float, bool, complex) else None

    # ---- operations on sets

    def _build_set(self, op: str, arg: int) -> None:
        if op == "BUILD_SET":
            items = self._pop_many(arg)
            self._stack.append(_EMPTY if not arg else SEEDED if items == [_PLAIN] * arg else UNKNOWN)
            return
        item = self._pop()
        kind = UNKNOWN if op == "SET_ADD" else item if item in (_EMPTY, SEEDED) else UNKNOWN
        self._stack = [None] * (arg - len(self._stack)) + self._stack
        kinds = kind, self._stack[-arg]
        self._stack[-arg] = next(worst for worst in (UNKNOWN, SEEDED, _EMPTY) if worst in kinds)

    def _operate(self, step: dis.Instruction) -> None:
        values = self._pop_many(2)
        if not step.argrepr.startswith(_OPERATORS):
            self._observe(*values)
            self._stack.append(None)
        elif {SEEDED, UNKNOWN, _VIEW, _EMPTY}.isdisjoint(v for v in values if type(v) is str):
            self._stack.append(None)
        else:
            self._stack.append(SEEDED if set(values) <= {SEEDED, _EMPTY} else UNKNOWN)

    def _call(self, step: dis.Instruction) -> None:
        if step.opname == "KW_NAMES":
            self._has_keywords = True
            return
        has_keywords, self._has_keywords = self._has_keywords or step.opname == "CALL_KW", False
        if step.opname == "CALL_KW":
            self._pop()
        arguments = self._pop_many(step.arg or 0)
        below = self._pop_many(2)
        callee = next((value for value in below if type(value) is tuple), None)
        self._observe(*(value for value in below if value is not callee))
        self._stack.append(self._result(None if has_keywords else callee, arguments))
        if has_keywords:
            self._observe(callee)

    def _result(self, callee: Any, arguments: list[Any]) -> str | None:
        kinds = [value for value in arguments if value in (SEEDED, UNKNOWN, _EMPTY)]
        match callee:
            case ("call", "keys"):
                return _VIEW
            case ("call", "comprehension"):
                return UNKNOWN
            case ("call", "isinstance" | "issubclass"):
                return None
            case ("call", "frozenset") if not arguments:
                return _EMPTY
            case ("call", "set" | "frozenset"):
                return kinds[0] if kinds else UNKNOWN
            case ("call", _) if len(arguments) == 1:
                self._observe(*(value for value in arguments if type(value) is tuple))
                return None
            case ("method", name, owner) if name in _ALGEBRA:
                return owner if len(kinds) == len(arguments) and {owner, *kinds} <= {SEEDED, _EMPTY} else UNKNOWN
            case ("method", name, owner) if name in _TESTS | _CHANGES:
                if name in _CHANGES and arguments and owner != UNKNOWN:
                    # The set has other elements now, so its kind is unknown wherever it is bound.
                    self._observe(UNKNOWN)
                return None
        self._observe(*arguments, callee)
        return None


def _leads_to_raise(steps: list[dis.Instruction], at: int) -> bool:
    """Return whether the steps that follow a step only make an exception and raise it."""
    for step in steps[at + 1 :]:
        if step.opname == "RAISE_VARARGS":
            return True
        if step.opname in _ENDS or "JUMP" in step.opname or step.opname.startswith("STORE"):
            return False
    return False
