"""Imports inside functions: the source of a user module is captured, and runs when it is imported.

The key is therefore the same whether or not this process has imported the module yet. If it has, values that the
source does not surely give are captured too, because the program may have rebound them
(`user_code/source_values.py`).
"""

import importlib.util
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from types import CodeType, FunctionType, ModuleType
from typing import Any

from jitclient.capture.describe.namespaces import bind, bind_builtins, namespace_of, whole
from jitclient.capture.graph.nodes import Node
from jitclient.capture.graph.walker import Walker
from jitclient.capture.user_code.bytecode import Refs, refs_of
from jitclient.capture.user_code.installed import is_user_module
from jitclient.capture.user_code.module_sources import Outline, code_of, is_surely_imported, source_of
from jitclient.capture.user_code.names import MISSING
from jitclient.capture.user_code.source_values import unproved


def add_imports(walker: Walker, node: Node, refs: Refs, package: str, by: str | None = None) -> None:
    """Make a node need the modules that its code imports.

    Args:
        walker: the walk that captures the node.
        node: a function or a module's source.
        refs: names that its code reads.
        package: package that relative imports refer to.
        by: module that holds the function, if it is one. Modules that `by` itself imports are already loaded.
    """
    for name, level, wanted in refs.imports:
        if level:
            name = importlib.util.resolve_name("." * level + name, package)
        walker.uses_package(name)
        if by is None or not _add_names(walker, node, by, name, wanted):
            _add_source(walker, node, name, wanted)


def _add_source(walker: Walker, node: Node, name: str, wanted: tuple[str, ...]) -> None:
    """Make a node need the source of a user module, of its parents, and of the submodules in `wanted`."""
    if not is_user_module(name):
        return
    for full in (name, *(f"{name}.{submodule}" for submodule in wanted if submodule != "*")):
        while full:
            source = _source(walker, full, is_named=full == name)
            if source is not None:
                node.needs.append((source, False))
            full = full.rpartition(".")[0]


def _add_names(walker: Walker, node: Node, by: str, name: str, wanted: tuple[str, ...]) -> bool:
    """Make a node need only the `wanted` names of a user module that is surely loaded; return whether it does."""
    live = sys.modules.get(name)
    if live is None or not wanted or not is_user_module(name) or name == "__main__":
        return False
    held = [vars(live).get(each, MISSING) for each in wanted]
    if any(value is MISSING or isinstance(value, ModuleType) for value in held):
        return False
    if not is_surely_imported(name, by):
        return False
    at = ("names", name)
    if at not in walker.bindings:
        walker.bindings[at] = Node("alias", None, [name, namespace_of(walker, vars(live))])
        walker.watch.name(sys.modules, name, live)
    node.needs.append((walker.bindings[at], False))
    for each in wanted:
        node.needs += [(bound, True) for bound in bind(walker, vars(live), each, ())]
    return True


def _source(walker: Walker, name: str, is_named: bool) -> Node | None:
    at = ("source", name)
    if at in walker.bindings:
        return walker.bindings[at]
    spec, live = source_of(name), sys.modules.get(name)
    if spec is not None:
        node = walker.bindings[at] = Node("source")
        walker.later(node, lambda: _describe_source(walker, node, name, spec, live))
    elif live is not None and is_named:
        node = walker.bindings[at] = Node("alias", None, [name, namespace_of(walker, vars(live))])
        walker.later(node, lambda: node.needs.append((whole(walker, vars(live)), True)))
    return walker.bindings.get(at)


def _describe_source(walker: Walker, node: Node, name: str, spec: ModuleSpec, live: ModuleType | None) -> None:
    code, outline = code_of(spec, "docs" in walker.options)
    if spec.has_location:
        walker.watch.file(spec.origin or "")
    walker.watch.name(sys.modules, name, MISSING if live is None else live)
    is_package = spec.submodule_search_locations is not None
    parent = name if is_package else name.rpartition(".")[0]
    node.obj = code
    if live is None:
        home = namespace_of(walker, {"__name__": name, "__file__": spec.origin})
    else:
        home = namespace_of(walker, vars(live))
        node.needs += _values_beside(walker, code, outline, live, parent)
        walker.on_idle(lambda: _bind_what_is_made(walker, node, vars(live)))
        walker.on_idle(lambda: _add_submodules(walker, node, live))
    gone = [] if live is None else sorted(each for each in outline.names if each not in vars(live))
    node.args = [name, is_package, walker.code(code), home, gone]
    refs = refs_of(code)
    walker.words |= refs.words
    node.needs += [(bound, True) for bound in bind_builtins(walker, home.obj, refs.globals)]
    add_imports(walker, node, refs, parent)


def _add_submodules(walker: Walker, node: Node, package: ModuleType) -> None:
    """Make a node need submodules that other code has imported.

    Captured code may read them as attributes of their package.
    """
    for name in sorted(walker.words & vars(package).keys()):
        held, full = vars(package)[name], f"{package.__name__}.{name}"
        if not isinstance(held, ModuleType) or held.__name__ != full or ("source", full) in walker.bindings:
            continue
        if not is_surely_imported(full, by=package.__name__):
            _add_source(walker, node, full, ())


def _values_beside(
    walker: Walker, code: CodeType, outline: Outline, live: ModuleType, package: str
) -> Iterator[tuple[Node, bool]]:
    """Iterate over bindings of a live module's values that its source may not give."""
    names = vars(live)
    for each in outline.names - names.keys():
        walker.watch.name(names, each, MISSING)
    for each in [each for each in names if not each.startswith("__")]:
        walker.watch.name(names, each, names[each])
        _watch_definition(walker, names[each], live.__name__)
    for each in unproved(code, outline, names, package):
        chains = {()} if isinstance(names[each], ModuleType) else set()
        yield from ((bound, True) for bound in bind(walker, names, each, chains))


def _bind_what_is_made(walker: Walker, node: Node, names: dict[str, Any]) -> None:
    """Bind names whose values the capture makes anyway, so that importing code gets the same objects."""
    for each in [each for each in names if not each.startswith("__")]:
        if (id(names), each) not in walker.bindings and walker.made(names[each]):
            node.needs += [(bound, True) for bound in bind(walker, names, each, ())]


def _watch_definition(walker: Walker, value: Any, module: str) -> None:
    if isinstance(value, FunctionType):
        walker.watch.function(value)
    elif isinstance(value, type) and value.__module__ == module:
        walker.watch.class_(value)
        for name, held in vars(value).copy().items():
            if not name.startswith("__") or isinstance(held, FunctionType):
                _watch_definition(walker, held, module)
