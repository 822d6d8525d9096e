"""What a code object reads by name: globals, attributes of them, imports."""

import dis
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

Chain = tuple[str, ...]

GLOBAL_READS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})
GLOBAL_WRITES = frozenset({"STORE_GLOBAL", "DELETE_GLOBAL"})
_CELL_WRITES = frozenset({"STORE_DEREF", "DELETE_DEREF"})
ATTRIBUTE_READS = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_READS = GLOBAL_READS | ATTRIBUTE_READS | {"IMPORT_FROM"}
_NAMESPACE_READERS = frozenset({"eval", "exec", "globals", "f_globals", "__globals__"})
_IGNORED = frozenset({"CACHE", "PRECALL", "EXTENDED_ARG"})


@dataclass
class Refs:
    """What a code object reads by name."""

    globals: dict[str, set[Chain]] = field(default_factory=dict)
    """Global name -> the chains of attributes read from it; an empty chain: it escapes."""
    imports: list[tuple[str, int, tuple[str, ...]]] = field(default_factory=list)
    """(name, level, names wanted from it)"""
    words: set[str] = field(default_factory=set)
    """Every name it reads, and every string constant that could be one."""
    dynamic: bool = False
    """It may read its whole namespace."""
    writes_globals: bool = False
    writes_cells: bool = False

    @property
    def relative(self) -> bool:
        """Whether it imports relatively, and so depends on the name of its package."""
        return any(level for _, level, _ in self.imports)

    def add(self, other: "Refs") -> None:
        """Read what `other` reads, too."""
        for name, chains in other.globals.items():
            self.globals.setdefault(name, set()).update(chains)
        self.imports += other.imports
        self.words |= other.words
        self.dynamic |= other.dynamic
        self.writes_globals |= other.writes_globals
        self.writes_cells |= other.writes_cells


_Known = dict[int, tuple[CodeType, Refs]]  # keeps the code alive, so that no other comes to have its id

_known: _Known = {}
_known_own: _Known = {}


def refs_of(code: CodeType) -> Refs:
    """What `code` reads by name; worked out once per code object."""
    if id(code) not in _known:
        refs = Refs()
        for inner in nested(code):
            refs.add(own_refs_of(inner))
        _known[id(code)] = code, refs
    return _known[id(code)][1]


def own_refs_of(code: CodeType) -> Refs:
    """What `code` reads by name without those nested in it, which may never run."""
    if id(code) not in _known_own:
        refs = Refs()
        _read(code, refs)
        _known_own[id(code)] = code, refs
    return _known_own[id(code)][1]


def instructions(code: CodeType) -> list[dis.Instruction]:
    """The instructions of `code`, without those that only serve the interpreter."""
    return [step for step in dis.get_instructions(code) if step.opname not in _IGNORED]


def nested(code: CodeType) -> Iterator[CodeType]:
    """A code object and those nested in it, in the order of their locations."""
    yield code
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from nested(const)


def _read(code: CodeType, refs: Refs) -> None:
    refs.dynamic |= not _NAMESPACE_READERS.isdisjoint(code.co_names)
    paths = (const.replace(":", ".") for const in code.co_consts if type(const) is str)
    texts = (part for path in paths for part in path.split("."))
    refs.words.update(part for part in texts if part.isidentifier())
    # a dataclass shows its own qualified name, which travels with it
    ignored = {"__qualname__"} if code.co_filename == "<string>" and code.co_name == "__repr__" else set()
    steps = instructions(code)
    for at, step in enumerate(steps):
        if step.opname in _READS:
            refs.words |= {step.argval} - ignored
        if step.opname in GLOBAL_READS and not _is_preamble(steps, at):
            refs.globals.setdefault(step.argval, set()).add(tuple(_attributes(steps, at + 1)))
        elif step.opname in GLOBAL_WRITES:
            refs.writes_globals = True
        elif step.opname in _CELL_WRITES:
            refs.writes_cells |= step.argval in code.co_freevars
        elif step.opname == "IMPORT_NAME":
            level, wanted = steps[at - 2].argval, steps[at - 1].argval
            refs.imports.append((step.argval, level or 0, wanted or ()))


def _is_preamble(steps: list[dis.Instruction], at: int) -> bool:
    """Whether this is the `__module__ = __name__` with which every body of a class begins."""
    after = steps[at + 1] if at + 1 < len(steps) else steps[at]
    return bool(steps[at].argval == "__name__" and after.argval == "__module__")


def _attributes(steps: list[dis.Instruction], at: int) -> Iterator[str]:
    while at < len(steps) and steps[at].opname in ATTRIBUTE_READS:
        name: Any = steps[at].argval
        yield name
        at += 1
