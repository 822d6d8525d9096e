"""Sources of user modules: their code, their outlines (the names that their statements surely bind), their imports."""

import ast
import contextlib
import importlib.util
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from types import CodeType
from typing import Any

from jitclient.capture.user_code.installed import find_source, is_user_module
from jitclient.errors import CaptureError

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


def source_of(name: str) -> ModuleSpec | None:
    """Return the spec of a module whose source can be captured; otherwise None.

    The source is a Python file, or a directory without `__init__` (a namespace package).
    """
    spec = find_source(name) if name != "__main__" else None
    if spec is None or not ((spec.origin or "").endswith(".py") or _is_namespace_package(spec)):
        return None
    return spec


def _is_namespace_package(spec: ModuleSpec) -> bool:
    return not spec.has_location and spec.submodule_search_locations is not None


def code_of(spec: ModuleSpec, keep_docs: bool) -> tuple[CodeType, Outline]:
    """Return a module's code and outline.

    Docstrings stay if `keep_docs` is set or the source mentions `__doc__`.

    Raises:
        CaptureError: the source cannot be read or parsed.
    """
    if _is_namespace_package(spec):
        return compile("", "", "exec"), Outline()
    return _code_of_file(spec.origin or "", keep_docs)


def _imported_by(name: str) -> set[str]:
    """Return the user modules that a module's unconditional import statements name."""
    spec = source_of(name)
    if spec is None:
        return set()
    package = name if spec.submodule_search_locations is not None else name.rpartition(".")[0]
    found: set[str] = set()
    # The source cannot be read, or a relative import cannot be resolved.
    with contextlib.suppress(CaptureError, ImportError):
        for inner, level, wanted in code_of(spec, keep_docs=False)[1].imports:
            full = importlib.util.resolve_name("." * level + inner, package) if level else inner
            if is_user_module(full):
                submodules = (f"{full}.{each}" for each in wanted)
                found |= {full, *(each for each in submodules if source_of(each) is not None)}
    return found


_MAX_SEARCHED = 64


def is_surely_imported(wanted: str, by: str) -> bool:
    """Return whether importing the user module `by` surely imports `wanted`.

    The search reads at most `_MAX_SEARCHED` sources.
    """
    found = [by]
    for number, name in enumerate(found):  # grows while it is read
        if name == wanted:
            return True
        if number < _MAX_SEARCHED:
            above = name.rpartition(".")[0]
            found += [each for each in (above, *sorted(_imported_by(name))) if each and each not in found]
    return False


_compiled: dict[tuple[str, bool, int, int], tuple[CodeType, Outline]] = {}


def _code_of_file(path: str, keep_docs: bool) -> tuple[CodeType, Outline]:
    try:
        stat = os.stat(path)
        key = (path, keep_docs, stat.st_mtime_ns, stat.st_size)
        if key not in _compiled:
            with open(path, "rb") as file:
                text = file.read()
            tree = ast.parse(text, path)
            if not keep_docs and b"__doc__" not in text:
                _leave_out_docs(tree)
            _compiled[key] = compile(tree, path, "exec", dont_inherit=True), outline_of(tree.body)
        return _compiled[key]
    except (OSError, SyntaxError, ValueError) as error:
        raise CaptureError(f"the source of an imported module cannot be read: {error}") from error


def _leave_out_docs(tree: ast.Module) -> None:
    """Remove the docstrings of modules and classes; those of functions are not part of their code."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef) and ast.get_docstring(node, clean=False) is not None:
            del node.body[0]
            if isinstance(node, ast.ClassDef) and not node.body:
                node.body.append(ast.Pass(lineno=node.lineno, col_offset=node.col_offset))


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
