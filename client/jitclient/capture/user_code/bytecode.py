"""Names that a code object reads: globals, attributes of globals, and imports."""

import builtins
import dis
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

Chain = tuple[str, ...]

GLOBAL_READS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})
GLOBAL_WRITES = frozenset({"STORE_GLOBAL", "DELETE_GLOBAL"})
_CELL_WRITES = frozenset({"STORE_DEREF", "DELETE_DEREF"})
ATTRIBUTE_READS = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_READS = GLOBAL_READS | ATTRIBUTE_READS | {"IMPORT_FROM"}
_NAMESPACE_READERS = frozenset({"eval", "exec", "globals"})
_NAMESPACES = frozenset({"f_globals", "__globals__"})
_BUILTINS = frozenset({"builtins", "__builtins__"})
_IGNORED = frozenset({"CACHE", "PRECALL", "EXTENDED_ARG"})


@dataclass
class Refs:
    """Names that a code object reads, and its writes to globals and cells."""

    globals: dict[str, set[Chain]] = field(default_factory=dict)
    """Global name -> chains of attributes read from it. An empty chain means that the value itself escapes."""
    imports: list[tuple[str, int, tuple[str, ...]]] = field(default_factory=list)
    """Imports as (name, level, imported names)."""
    words: set[str] = field(default_factory=set)
    """Every name that the code reads, and every string constant that could be a name."""
    reads_namespace: bool = False
    """Whether the code names a function or an attribute that gives its whole namespace."""
    writes_globals: bool = False
    writes_cells: bool = False

    @property
    def dynamic(self) -> bool:
        """Whether the code may read its whole namespace.

        An attribute of another object than the module `builtins` may also be named `eval` or `globals`.
        """
        asks_builtins = not (_BUILTINS.isdisjoint(self.words) or _NAMESPACE_READERS.isdisjoint(self.words))
        return self.reads_namespace or asks_builtins

    @property
    def relative(self) -> bool:
        """Whether the code imports relatively, and so depends on its package's name."""
        return any(level for _, level, _ in self.imports)

    def add(self, other: "Refs") -> None:
        """Add the reads and writes of `other` to these."""
        for name, chains in other.globals.items():
            self.globals.setdefault(name, set()).update(chains)
        self.imports += other.imports
        self.words |= other.words
        self.reads_namespace |= other.reads_namespace
        self.writes_globals |= other.writes_globals
        self.writes_cells |= other.writes_cells


def reads_whole(refs: Refs, names: Mapping[str, Any]) -> bool:
    """Return whether code with these globals may read all of them."""
    return refs.dynamic or any(names.get(name) is builtins for name in refs.globals)


# Each entry keeps its code alive, so that no other code object gets the same id.
_Known = dict[int, tuple[CodeType, Refs]]

_known: _Known = {}
_known_own: _Known = {}


def refs_of(code: CodeType) -> Refs:
    """Return the names that `code` and its nested code read; computed once per code object."""
    if id(code) not in _known:
        refs = Refs()
        for inner in nested(code):
            refs.add(own_refs_of(inner))
        _known[id(code)] = code, refs
    return _known[id(code)][1]


def own_refs_of(code: CodeType) -> Refs:
    """Return the names that `code` itself reads, without nested code, which may never run."""
    if id(code) not in _known_own:
        refs = Refs()
        _read(code, refs)
        _known_own[id(code)] = code, refs
    return _known_own[id(code)][1]


def instructions(code: CodeType) -> list[dis.Instruction]:
    """Return the instructions of `code`, without those that serve only the interpreter."""
    return [step for step in dis.get_instructions(code) if step.opname not in _IGNORED]


def nested(code: CodeType) -> Iterator[CodeType]:
    """Iterate over a code object and all nested ones, in the order of their locations."""
    yield code
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from nested(const)


def _read(code: CodeType, refs: Refs) -> None:
    paths = (const.replace(":", ".") for const in code.co_consts if type(const) is str)
    texts = (part for path in paths for part in path.split("."))
    refs.words.update(part for part in texts if part.isidentifier())
    # The `__repr__` of a dataclass shows the class's qualified name, which is captured with the class.
    ignored = {"__qualname__"} if code.co_filename == "<string>" and code.co_name == "__repr__" else set()
    steps = instructions(code)
    for at, step in enumerate(steps):
        if step.opname in _READS:
            refs.words |= {step.argval} - ignored
            readers = _NAMESPACES if step.opname in ATTRIBUTE_READS else _NAMESPACE_READERS
            refs.reads_namespace |= step.argval in readers
        if step.opname in GLOBAL_READS and not _is_preamble(steps, at):
            refs.globals.setdefault(step.argval, set()).add(tuple(_attributes(steps, at + 1)))
        elif step.opname in GLOBAL_WRITES:
            refs.writes_globals = True
        elif step.opname in _CELL_WRITES:
            refs.writes_cells |= step.argval in code.co_freevars
        elif step.opname == "PUSH_EXC_INFO" and steps[at + 1].opname == "POP_TOP":
            # `except:` without a name
            refs.words.add("BaseException")
        elif step.opname == "IMPORT_NAME":
            refs.words |= {step.argval} & _BUILTINS
            level, wanted = steps[at - 2].argval, steps[at - 1].argval
            refs.imports.append((step.argval, level or 0, wanted or ()))


def _is_preamble(steps: list[dis.Instruction], at: int) -> bool:
    """Return whether an instruction belongs to `__module__ = __name__`, which starts every class body."""
    after = steps[at + 1] if at + 1 < len(steps) else steps[at]
    return bool(steps[at].argval == "__name__" and after.argval == "__module__")


def _attributes(steps: list[dis.Instruction], at: int) -> Iterator[str]:
    while at < len(steps) and steps[at].opname in ATTRIBUTE_READS:
        name: Any = steps[at].argval
        yield name
        at += 1
