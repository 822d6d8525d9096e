"""Sources of user modules: their code, their outlines, and the modules that they surely import."""

import ast
import contextlib
import importlib.util
import os
from importlib.machinery import ModuleSpec
from types import CodeType

from jitclient.capture.user_code.installed import find_source, is_user_module
from jitclient.capture.user_code.outline import Outline, outline_of
from jitclient.errors import CaptureError


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
