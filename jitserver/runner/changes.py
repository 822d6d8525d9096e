"""Changes of a source file, by qualified name: the functions whose code differs, as far as a program can depend on it.

Comments, layout, line numbers, docstrings and names of local variables do not count, as in the key of a program.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator
from inspect import CO_OPTIMIZED
from types import CodeType
from typing import Any, NamedTuple

from jitclient.capture.user_code.code import Kept, canonical_code
from jitclient.core.digests import digest
from jitclient.errors import CaptureError


class Outline(NamedTuple):
    """Content of a source file that programs can depend on.

    Attributes:
        definitions: digest of each function and class by its qualified name; methods are not part of their class.
        rest: digest of the statements at module level that define neither.
    """

    definitions: dict[str, bytes]
    rest: bytes


class Changes(NamedTuple):
    """Differences between two versions of a file.

    Attributes:
        definitions: qualified names of functions and classes that differ, are new or are gone.
        rest: whether other code at module level differs.
    """

    definitions: tuple[str, ...]
    rest: bool

    def __bool__(self) -> bool:
        return bool(self.definitions) or self.rest


def outline(source: bytes) -> Outline | None:
    """Return the outline of a source file; None if it is not valid Python."""
    keeps_docs = b"__doc__" in source
    try:
        tree = ast.parse(source)
        code = compile(source, "<source>", "exec", dont_inherit=True)
        definitions = defaultdict[str, list[Any]](list)
        for name, blob in _functions(code, Kept(docs=keeps_docs)):
            definitions[name].append(blob)
        statements = _Statements(keeps_docs, definitions)
        rest = ast.dump(statements.visit(tree))
    except (SyntaxError, ValueError, RecursionError, MemoryError, CaptureError):
        return None
    return Outline({name: _digest(parts) for name, parts in definitions.items()}, _digest(rest))


def compare(before: Outline, after: Outline) -> Changes:
    """Return the differences between two outlines, in the order of the definitions in the newer one, then the older."""
    names = dict.fromkeys([*after.definitions, *before.definitions])
    differ = [name for name in names if before.definitions.get(name) != after.definitions.get(name)]
    return Changes(tuple(differ), before.rest != after.rest)


def _digest(value: object) -> bytes:
    return digest(repr(value).encode(errors="surrogateescape"), 16)


def _functions(code: CodeType, kept: Kept) -> Iterator[tuple[str, bytes]]:
    """Yield the functions of a module or class body, with their canonical code, which includes nested functions."""
    for inner in code.co_consts:
        if not isinstance(inner, CodeType):
            continue
        # Bodies of classes, and of the scopes of type parameters, are not optimized.
        if not inner.co_flags & CO_OPTIMIZED or inner.co_name.startswith("<generic"):
            yield from _functions(inner, kept)
        elif not inner.co_name.startswith("<"):
            yield inner.co_qualname, canonical_code(inner, kept).blob


class _Statements(ast.NodeTransformer):
    """Removal of definitions and docstrings; what evaluates with a `def` or `class` is added to the definition."""

    def __init__(self, keeps_docs: bool, definitions: defaultdict[str, list[Any]]) -> None:
        self._keeps_docs = keeps_docs
        self._definitions = definitions
        self._above = ""

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """Add the decorators and defaults of a function."""
        given = [*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)]
        self._definitions[f"{self._above}{node.name}"].append([ast.dump(each) for each in given])

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """Add the bases and decorators of a class, and the statements in its body."""
        name, above = f"{self._above}{node.name}", self._above
        self._above = f"{name}."
        self.generic_visit(node)
        self._above = above
        self._definitions[name].append(ast.dump(node))

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        """Remove strings that stand alone: docstrings."""
        is_doc = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if is_doc and not self._keeps_docs else node
