"""Imports inside functions: the source of a user module travels and runs when it is imported.

So the key is the same whether or not this process has imported the module yet, as far as its source
shows what its values are. Of a live module, values that do not show so travel too, because they may
have been rebound (`source_values.py`).
"""

import ast
import contextlib
import importlib.util
import os
import sys
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import Any

from ..errors import CaptureError
from .bytecode import refs_of
from .graph import Node
from .installed import find_source, is_user_module
from .names import MISSING
from .namespaces import bind, namespace_of, whole
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
    code, literals = _module_code(spec.origin)
    walker.watch.file(spec.origin)
    walker.watch.name(sys.modules, name, MISSING if live is None else live)
    is_package = spec.submodule_search_locations is not None
    parent = name if is_package else name.rpartition(".")[0]
    node.obj = code
    if live is None:
        home = Node("namespace", {"__name__": name, "__file__": spec.origin})
    else:
        home = namespace_of(walker, vars(live))
        for each in [each for each in vars(live) if not each.startswith("__")]:
            walker.watch.name(vars(live), each, vars(live)[each])
        for each in unproved(code, literals, vars(live), parent):
            chains = {()} if isinstance(vars(live)[each], ModuleType) else set()
            node.needs += [(bound, True) for bound in bind(walker, vars(live), each, chains)]
    node.args = [name, is_package, walker.code(code), home]
    refs = refs_of(code)
    walker.words |= refs.words
    for inner, level, wanted in refs.imports:
        if level:
            inner = importlib.util.resolve_name("." * level + inner, parent)
        walker.uses_package(inner)
        add_source(walker, node, inner, wanted)


def _describe_live(walker: Walker, node: Node, name: str, live: ModuleType) -> None:
    node.args = [name, namespace_of(walker, vars(live))]
    node.needs.append((whole(walker, vars(live)), True))


_compiled: dict[tuple[str, int, int], tuple[CodeType, dict[str, Any]]] = {}


def _module_code(path: str) -> tuple[CodeType, dict[str, Any]]:
    """The code of a source file, and its literals; its docstring is left out unless the file may read it."""
    try:
        stat = os.stat(path)
        key = (path, stat.st_mtime_ns, stat.st_size)
        if key not in _compiled:
            with open(path, "rb") as file:
                text = file.read()
            tree = ast.parse(text, path)
            if ast.get_docstring(tree) is not None and b"__doc__" not in text:
                del tree.body[0]
            _compiled[key] = compile(tree, path, "exec", dont_inherit=True), _literals(tree)
        return _compiled[key]
    except (OSError, SyntaxError, ValueError) as error:
        raise CaptureError(f"the source of an imported module cannot be read: {error}") from error


def _literals(tree: ast.Module) -> dict[str, Any]:
    """Values of names that are assigned once, as displays of constants."""
    found: dict[str, Any] = {}
    again: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            if node.id in found:
                again.add(node.id)
            found[node.id] = MISSING
    for statement in tree.body:
        target = statement.targets[0] if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None
        if isinstance(statement, ast.Assign) and isinstance(target, ast.Name):
            with contextlib.suppress(ValueError, TypeError, RecursionError):
                found[target.id] = ast.literal_eval(statement.value)
    return {name: value for name, value in found.items() if value is not MISSING and name not in again}
