"""Outline of a module or class body: the names that its statements bind, as far as its source shows."""

import ast
import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

_DESCRIPTORS = ("property", "staticmethod", "classmethod")
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Signature:
    """Definition of a function, apart from its code."""

    decorator: str  # "property", "staticmethod", "classmethod" or empty
    defaults: tuple[Any, ...] | None
    kwdefaults: dict[str, Any] | None


@dataclass(frozen=True)
class Outline:
    """Names that a body binds exactly once, by unconditional statements, and never deletes."""

    names: set[str] = field(default_factory=set)
    literals: dict[str, Any] = field(default_factory=dict)  # name -> value of the literal
    functions: dict[str, Signature] = field(default_factory=dict)  # only those with literal defaults
    classes: dict[str, "Outline"] = field(default_factory=dict)
    imports: list[tuple[str, int, tuple[str, ...]]] = field(default_factory=list)  # (name, level, imported names)


def outline_of(body: list[ast.stmt]) -> Outline:
    """Return the outline of a module or class body."""
    times = Counter(name for statement in body for name in _bound_by(statement))
    outline = Outline()
    for statement in body:
        outline.imports.extend(_imports(statement))
        for name in _bound_by(statement) if isinstance(statement, _SURE) else ():
            if times[name] == 1:
                outline.names.add(name)
                # The error means that the statement binds no literal.
                with contextlib.suppress(ValueError, TypeError, RecursionError):
                    _add(outline, name, statement)
    return outline


_SURE = (ast.Assign, ast.AnnAssign, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)


def _imports(statement: ast.stmt) -> Iterator[tuple[str, int, tuple[str, ...]]]:
    if isinstance(statement, ast.Import):
        yield from ((each.name, 0, ()) for each in statement.names)
    elif isinstance(statement, ast.ImportFrom):
        yield statement.module or "", statement.level, tuple(each.name for each in statement.names)


def _add(outline: Outline, name: str, statement: ast.stmt) -> None:
    if isinstance(statement, ast.ClassDef):
        outline.classes[name] = outline_of(statement.body)
    elif isinstance(statement, _Function):
        outline.functions[name] = _signature(statement)
    elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
        # With two targets, both names would share one list.
        if len(statement.targets) == 1:
            outline.literals[name] = ast.literal_eval(statement.value)
    elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
        outline.literals[name] = ast.literal_eval(statement.value)


def _signature(function: _Function) -> Signature:
    decorators = [each.id if isinstance(each, ast.Name) else "" for each in function.decorator_list]
    if len(decorators) > 1 or not set(decorators) <= {*_DESCRIPTORS}:
        raise ValueError("decorated")
    arguments = function.args
    defaults = tuple(map(ast.literal_eval, arguments.defaults))
    kwdefaults = {
        argument.arg: ast.literal_eval(default)
        for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        if default is not None
    }
    return Signature("".join(decorators), defaults or None, kwdefaults or None)


def _bound_by(node: ast.AST) -> Iterator[str]:
    """Iterate over the names that a statement binds or deletes in its own scope, once per occurrence."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
        return
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield from (each.asname or each.name.partition(".")[0] for each in node.names if each.name != "*")
    elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        yield node.id
    elif isinstance(node, ast.AnnAssign) and node.value is None:
        return
    elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
        yield node.name
    for child in ast.iter_child_nodes(node):
        yield from _bound_by(child)
