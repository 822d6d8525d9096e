"""Imports inside functions: the source of a user module travels and runs when it is imported.

So the key is the same whether or not this process has imported the module yet, as far as its source
shows what its values are. Of a live module, values that do not show so travel too, because they may
have been rebound (`source_values.py`).
"""

import ast
import importlib.util
import os
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from types import CodeType, FunctionType, ModuleType
from typing import Any

from ..errors import CaptureError
from .bytecode import refs_of
from .graph import Node
from .installed import find_source, is_user_module
from .names import MISSING
from .namespaces import bind, namespace_of, whole
from .outline import Outline, outline_of
from .source_values import unproved
from .walker import Walker


def add_source(walker: Walker, node: Node, name: str, wanted: tuple[str, ...]) -> None:
    """Make a node need the source of a user module, of its parents, and of submodules wanted."""
    if not is_user_module(name):
        return
    for full in (name, *(f"{name}.{submodule}" for submodule in wanted if submodule != "*")):
        while full:
            source = _source(walker, full, is_named=full == name)
            if source is not None:
                node.needs.append((source, False))
            full = full.rpartition(".")[0]


def _source(walker: Walker, name: str, is_named: bool) -> Node | None:
    at = ("source", name)
    if at in walker.bindings:
        return walker.bindings[at]
    spec = find_source(name) if name != "__main__" else None
    live = sys.modules.get(name)
    if spec is not None and (spec.origin or "").endswith(".py"):
        node = walker.bindings[at] = Node("source", None)
        walker.later(node, lambda: _describe_source(walker, node, name, spec, live))
        return node
    if live is not None and is_named:
        node = walker.bindings[at] = Node("alias", None)
        walker.later(node, lambda: _describe_live(walker, node, name, live))
        return node
    return None


def _describe_source(walker: Walker, node: Node, name: str, spec: ModuleSpec, live: ModuleType | None) -> None:
    assert spec.origin is not None
    code, outline = _module_code(spec.origin, "docs" in walker.options)
    walker.watch.file(spec.origin)
    walker.watch.name(sys.modules, name, MISSING if live is None else live)
    is_package = spec.submodule_search_locations is not None
    parent = name if is_package else name.rpartition(".")[0]
    node.obj = code
    if live is None:
        home = Node("namespace", {"__name__": name, "__file__": spec.origin})
    else:
        home = namespace_of(walker, vars(live))
        node.needs += _values_beside(walker, code, outline, live, parent)
    gone = [] if live is None else sorted(each for each in outline.names if each not in vars(live))
    node.args = [name, is_package, walker.code(code), home, gone]
    refs = refs_of(code)
    walker.words |= refs.words
    for inner, level, wanted in refs.imports:
        if level:
            inner = importlib.util.resolve_name("." * level + inner, parent)
        walker.uses_package(inner)
        add_source(walker, node, inner, wanted)


def _values_beside(
    walker: Walker, code: CodeType, outline: Outline, live: ModuleType, package: str
) -> Iterator[tuple[Node, bool]]:
    """What a live module holds that its source may not give it."""
    names = vars(live)
    for each in outline.names - names.keys():
        walker.watch.name(names, each, MISSING)
    for each in [each for each in names if not each.startswith("__")]:
        walker.watch.name(names, each, names[each])
        _watch_definition(walker, names[each], live.__name__)
    for each in unproved(code, outline, names, package):
        chains = {()} if isinstance(names[each], ModuleType) else set()
        yield from ((bound, True) for bound in bind(walker, names, each, chains))


def _watch_definition(walker: Walker, value: Any, module: str) -> None:
    if isinstance(value, FunctionType):
        walker.watch.function(value)
    elif isinstance(value, type) and value.__module__ == module:
        walker.watch.class_(value)
        for name, held in list(vars(value).items()):
            if not name.startswith("__") or isinstance(held, FunctionType):
                _watch_definition(walker, held, module)


def _describe_live(walker: Walker, node: Node, name: str, live: ModuleType) -> None:
    node.args = [name, namespace_of(walker, vars(live))]
    node.needs.append((whole(walker, vars(live)), True))


_compiled: dict[tuple[str, bool, int, int], tuple[CodeType, Outline]] = {}


def _module_code(path: str, keep_docs: bool) -> tuple[CodeType, Outline]:
    """The code of a source file, and its outline, without docstrings that nothing reads."""
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
    """Those of functions are no part of their code."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef) and ast.get_docstring(node, clean=False) is not None:
            del node.body[0]
            if isinstance(node, ast.ClassDef) and not node.body:
                node.body.append(ast.Pass(lineno=node.lineno, col_offset=node.col_offset))
