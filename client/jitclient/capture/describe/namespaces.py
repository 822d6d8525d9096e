"""Bindings of names: the globals that functions read, and the attributes of modules that they read.

Only the names that code reads are bound from a user module. A module is bound whole if it escapes, or if code may
read it in ways that the bytecode does not show. An object in it that cannot be captured then fails only when used.
"""

import builtins
import contextlib
import contextvars
import functools
import importlib.util
import sys
from collections.abc import Collection, Iterable, Iterator
from types import BuiltinFunctionType, ModuleType
from typing import Any

from jitclient.capture.ambient.inputs import AMBIENT_MODULES, DIFFERENT_IN_EACH_PROCESS, ambient_name
from jitclient.capture.codec.plain import Reduced, is_plain
from jitclient.capture.graph.nodes import Node, Value
from jitclient.capture.graph.walker import Walker, describes
from jitclient.capture.user_code.bytecode import Chain, Refs
from jitclient.capture.user_code.installed import find_source, is_user_module
from jitclient.capture.user_code.libraries import is_flags
from jitclient.capture.user_code.names import MISSING, home_of
from jitclient.capture.user_code.ownership import (
    functions_in,
    is_user_class,
    is_user_function,
    is_user_made,
    raise_if_holds_user_code,
)
from jitclient.capture.user_code.registry import raise_if_registered
from jitclient.errors import CaptureError

_OF_PYTHON = {*vars(ModuleType("")), "__builtins__", "__cached__", "__file__", "__path__", "__warningregistry__"}
"""Names that Python binds in a module, whatever its source."""

_not_there: contextvars.ContextVar[Collection[str]] = contextvars.ContextVar("_not_there", default=())

# Larger containers of installed modules are not the user's settings.
_LARGE = 10_000


def namespace_of(walker: Walker, names: dict[str, Any]) -> Node:
    """Return the node of a namespace, which becomes a module private to the capture."""
    return walker.namespaces.setdefault(id(names), Node("namespace", names))


@contextlib.contextmanager
def without_modules(names: Collection[str]) -> Iterator[None]:
    """Let captures in a block be those of a process that has not loaded these modules: a package loads some lazily."""
    token = _not_there.set(names)
    try:
        yield
    finally:
        _not_there.reset(token)


def bind(walker: Walker, names: dict[str, Any], name: str, chains: Iterable[Chain]) -> list[Node]:
    """Return the nodes that bind a name, and that bind the attributes read of its value if it is a module or class."""
    value = names.get(name, MISSING)
    walker.watch.name(names, name, value)
    if value is MISSING:
        value = _from_builtins(name)
        if value is not MISSING:
            walker.watch.name(vars(builtins), name, value)
    if value is MISSING:
        return bind(walker, names, "__getattr__", {()}) if "__getattr__" in names else []
    bound = [_binding(walker, names, name, value)]
    for chain in sorted(chains) if isinstance(value, type | ModuleType) else ():
        if isinstance(value, type):
            bound += _read_of_class(walker, value, chain)
        elif not is_user_module(value.__name__):
            bound += _patches(walker, names, name, value, chain)
        elif chain and (chain[0] in vars(value) or not hasattr(ModuleType, chain[0])):
            bound += bind(walker, vars(value), chain[0], {chain[1:]})
        else:
            # The module escapes, or an attribute of its type, such as `__dict__`, lists its names.
            bound.append(whole(walker, vars(value)))
    return bound


def bind_imports(walker: Walker, user: Node, refs: Refs, package: str) -> None:
    """Make a node need what its code imports of the user's modules, which must be loaded: names, or whole modules.

    Args:
        walker: the walk that captures the node.
        user: the node.
        refs: names that its code reads.
        package: package that relative imports refer to.

    Raises:
        CaptureError: nothing has imported one of the modules yet.
    """
    for name, level, wanted in refs.imports:
        full = importlib.util.resolve_name("." * level + name, package) if level else name
        walker.uses_package(full)
        if not is_user_module(full):
            continue
        needed = {full: () if "*" in wanted else wanted, **{f"{full}.{each}": () for each in wanted}}
        if not wanted:
            needed[full.partition(".")[0]] = ()  # `import a.b.c` binds `a`, which code may read in any way
        for each, names in needed.items():
            user.needs += _bind_import(walker, each, names)


def _bind_import(walker: Walker, name: str, wanted: Iterable[str]) -> Iterator[tuple[Node, bool]]:
    """Yield the nodes that make a module importable by name, with the wanted names; with all if none are."""
    module, at = sys.modules.get(name), ("import", name)
    walker.watch.name(sys.modules, name, MISSING if module is None else module)
    if module is None and find_source(name) is not None:
        raise CaptureError(f"the function imports {name} in its body, which nothing has imported before")
    if module is None:
        return
    if at not in walker.bindings:
        walker.bindings[at] = Node("alias", None, [name, namespace_of(walker, vars(module))])
    yield walker.bindings[at], False
    if not wanted:
        yield whole(walker, vars(module)), True
    for each in wanted:
        yield from ((bound, True) for bound in bind(walker, vars(module), each, {()}))


def bind_for_client(walker: Walker, user: Node, names: dict[str, Any], name: str) -> None:
    """Bind a name that only callbacks use, unless other code reads it."""
    value, at = names.get(name, MISSING), (id(names), name)
    walker.watch.name(names, name, value)

    def look() -> None:
        if value is MISSING or any(bound is walker.bindings.get(at) for bound, _ in user.needs):
            return
        if at not in walker.bindings:
            bound = walker.bindings[at] = Node("bind", None)
            bound.args = [namespace_of(walker, names), name, client_only(value)]
        user.needs.append((walker.bindings[at], False))

    walker.on_idle(look)


def client_only(value: Any) -> Node:
    """Return the stand-in for an object that only the client's callbacks use: it can be passed on, but not used."""
    return Node("of_client", value, [callable(value)])


def is_client_only(value: Value) -> bool:
    """Return whether a value was made by `of_client`."""
    return type(value) is Node and value.op == "of_client"


def _from_builtins(name: str) -> Any:
    """Return the builtin with a name that no module binds, if it may differ between processes; otherwise MISSING."""
    value = getattr(builtins, name, MISSING)
    if value is MISSING or name in DIFFERENT_IN_EACH_PROCESS:
        return MISSING
    return value if ambient_name(value) is not None or not _is_builtin(name, value) else MISSING


def _is_builtin(name: str, value: Any) -> bool:
    """Return whether Python itself put an object on `builtins`."""
    if isinstance(value, type | BuiltinFunctionType) and value.__module__ == "builtins":
        return name in (value.__name__, "EnvironmentError", "IOError")
    is_constant = name in ("None", "True", "False", "Ellipsis", "NotImplemented") or name.startswith("__")
    return is_constant or type(value).__module__ == "_sitebuiltins"


def _binding(walker: Walker, names: dict[str, Any], name: str, value: Any) -> Node:
    at = (id(names), name)
    node = walker.bindings.get(at)
    if node is None or is_client_only(node.args[2]):
        node = walker.bindings.setdefault(at, Node("bind", None))
        # Names read of a user module are bound separately, unless a class of the user's has a part in them.
        is_module = isinstance(value, ModuleType) and is_user_module(value.__name__) and not is_user_class(type(value))
        described = namespace_of(walker, vars(value)) if is_module else walker.value(value)
        node.args = [namespace_of(walker, names), name, described]
    return node


def whole(walker: Walker, names: dict[str, Any]) -> Node:
    """Return the node that binds every name of a namespace, in the order in which code that lists them finds them."""
    at = (id(names), None)
    node = walker.bindings.get(at)
    if node is None:
        # Python adds an empty `__annotations__` to `__main__`.
        in_order = [n for n in names if n not in _OF_PYTHON and (n != "__annotations__" or names[n])]
        node = walker.bindings[at] = Node("whole", None, [namespace_of(walker, names), in_order])
        walker.watch.size(names)
        for name in in_order:
            value = names[name]
            walker.watch.name(names, name, value)
            node.needs.append((_binding(walker, names, name, value), True))
            if isinstance(value, ModuleType) and is_user_module(value.__name__):
                node.needs.append((whole(walker, vars(value)), True))
    return node


@describes(ModuleType)
def _module(walker: Walker, module: ModuleType) -> Value:
    if not is_user_module(module.__name__):
        walker.uses_package(module.__name__)
        return Reduced("module", (module.__name__,))
    node = namespace_of(walker, vars(module))
    node.needs.append((whole(walker, vars(module)), True))
    return node


def _patches(walker: Walker, names: dict[str, Any], name: str, module: ModuleType, chain: Chain) -> list[Node]:
    """Return the bindings of names of an installed module that user code may have changed.

    These are ambient inputs, user code, absl's flags, plain settings, and objects that another process may lack.
    """
    # Some packages have stand-ins, which load modules when they are used.
    value: Any = module if type(module) is ModuleType else sys.modules.get(module.__name__)
    if value is None or value.__name__ in _not_there.get():
        return []
    bound: list[Node] = []
    for depth, part in enumerate(chain):
        if isinstance(value, type):
            bound += _read_of_class(walker, value, chain[depth:])
        if not isinstance(value, ModuleType):
            break
        if is_user_module(value.__name__):
            return bound + bind(walker, vars(value), part, {chain[depth + 1 :]})
        # `getattr` could import a submodule, because modules import lazily.
        held = vars(value).get(part, MISSING)
        if held is MISSING and f"{value.__name__}.{part}" in AMBIENT_MODULES:
            held = importlib.import_module(f"{value.__name__}.{part}")
        walker.watch.name(vars(value), part, held)
        if held is MISSING or (isinstance(held, ModuleType) and held.__name__ in _not_there.get()):
            break
        dotted = chain[: depth + 1]
        ambient = ambient_name(held)
        is_ours = ambient is not None or is_user_made(held) or is_flags(held)
        if is_ours or _is_settings(held) or _may_be_other(value, part, held):
            walker.patches.add((value.__name__, part))
            at = (id(names), name, dotted)
            if at not in walker.bindings:
                node = walker.bindings[at] = Node("patch")
                node.args = [namespace_of(walker, names), name, list(dotted), walker.value(held)]
            bound.append(walker.bindings[at])
        value = held
    if isinstance(value, type):
        bound += _read_of_class(walker, value, ())
    return bound


def _read_of_class(walker: Walker, cls: type, chain: Chain) -> list[Node]:
    """Return the traps for ambient methods among the attributes read of a class, such as `datetime.now`.

    Raises:
        CaptureError: user code was put on the class or on an installed base, or registered one of them as a pytree.
    """
    for base in cls.__mro__:
        if not is_user_class(base):
            raise_if_holds_user_code(base)
            raise_if_registered(base)
    attribute = getattr(cls, chain[0], None) if chain else None
    if attribute is None or ambient_name(attribute) is None:
        return []
    found = walker.value(attribute)
    return [found] if isinstance(found, Node) else []


def _may_be_other(module: ModuleType, name: str, held: Any) -> bool:
    """Return whether another process may hold a different object, or none, under a name in an installed module.

    The object is then captured by its own name.
    """
    if module is builtins and not _is_builtin(name, held):
        return True
    if isinstance(held, ModuleType):
        # A submodule may be present only because the program imported it.
        return held.__name__ == f"{module.__name__}.{name}" and "__getattr__" not in vars(module)
    if isinstance(held, functools.partial) or any(map(is_user_function, functions_in(held))):
        return True
    home = home_of(held)
    if home is None:
        return type(held).__name__ == "PjitFunction"
    return home[1].rpartition(".")[2] != name or home[0].partition(".")[0] != module.__name__.partition(".")[0]


def _is_settings(held: Any) -> bool:
    if type(held) in (list, set, dict):
        values = held.values() if type(held) is dict else ()
        return len(held) <= _LARGE and all(map(is_plain, (*held, *values)))
    return is_plain(held)
