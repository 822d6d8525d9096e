"""Describer for functions: code, namespace and closure, then defaults, attributes and the globals that they read."""

import builtins
import dis
import itertools
import sys
from collections.abc import Collection, Mapping
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from jitclient.capture.codec.plain import Reduced
from jitclient.capture.describe.namespaces import (
    bind,
    bind_for_client,
    bind_imports,
    client_only,
    is_client_only,
    namespace_of,
    whole,
)
from jitclient.capture.graph.nodes import Node, Value
from jitclient.capture.graph.walker import Walker, describes, describes_as
from jitclient.capture.user_code.bytecode import Refs, nested, reads_whole, refs_of
from jitclient.capture.user_code.callback_only import CallbackOnly, callback_only
from jitclient.capture.user_code.libraries import stable_names
from jitclient.capture.user_code.names import MISSING, content_of, home_of
from jitclient.capture.user_code.ownership import has_private_globals
from jitclient.errors import AmbientInput, CaptureError

_READERS_OF_PLACES = {
    *("f_lineno", "tb_lineno", "__module__"),
    *("co_filename", "co_firstlineno", "co_lines", "co_linetable", "co_lnotab", "co_positions"),
    *("Bytecode", "findlinestarts", "get_instructions"),
}
_HOLDERS_OF_CODE = {"__code__", "ag_code", "cr_code", "f_code", "gi_code"}
_PLACELESS = {"co_argcount", "co_cellvars", "co_flags", "co_freevars", "co_kwonlyargcount", "co_name", "co_names"}
_PLACELESS |= {"co_nlocals", "co_posonlyargcount", "co_stacksize", "co_varnames"}
_DESCRIPTIVE = {"__doc__", "__module__", "__qualname__"}
_HOME_OF_SHARD_MAP = "jax._src.shard_map"


@describes_as("function", FunctionType, by_name=True)
def _function(walker: Walker, node: Node, func: FunctionType) -> None:
    walker.watch.function(func)
    cells = zip(func.__code__.co_freevars, func.__closure__ or (), strict=True)
    private = has_private_globals(func)
    handed, home = CallbackOnly(), func.__globals__.get("__name__")
    if private:
        handed, home = callback_only(func), namespace_of(walker, func.__globals__)
    else:
        walker.leaves_caches_empty(map(content_of, func.__closure__ or ()))
        walker.uses_package(str(home))
    later = _cells_after_trace(func)
    closure = [
        _held_by_client(walker, cell, name)
        if name in handed.free
        else _cell(walker, cell, name, later.get(name, MISSING))
        for name, cell in cells
    ]
    refs = refs_of(func.__code__)
    own, known = func.__builtins__, vars(builtins)
    if any(own.get(name) is not known.get(name) for name in refs.globals.keys() - func.__globals__.keys()):
        raise CaptureError("a function whose globals have builtins of their own cannot be captured")
    rebinds = refs.writes_globals or refs.writes_cells or reads_whole(refs, func.__globals__)
    node.args = [walker.code(func.__code__), home, func.__name__, closure, rebinds]
    if func.__defaults__:
        node.fill("defaults", walker.value(func.__defaults__), label="default")
    if func.__kwdefaults__:
        names = stable_names(func.__code__)
        defaults = {names.get(name, name): value for name, value in func.__kwdefaults__.items()}
        node.fill("kwdefaults", walker.pairs(defaults), label="default")
    attributes = state_of(vars(func))
    if attributes:
        node.fill("attributes", walker.pairs(attributes))
    if "docs" in walker.options and func.__doc__ is not None:
        node.fill("attributes", [["__doc__", walker.value(func.__doc__)]])
    if "qualnames" in walker.options and func.__qualname__ != func.__name__:
        node.fill("attributes", [["__qualname__", walker.value(func.__qualname__)]])
    if "annotations" in walker.options and func.__annotations__:
        node.fill("annotations", walker.pairs(func.__annotations__), optional=True)
    if private:
        _add_references(walker, node, func, refs, handed.names)


def _add_references(walker: Walker, node: Node, func: FunctionType, refs: Refs, handed: Collection[str]) -> None:
    """Make a node need all globals that its code reads, except the names only `handed` to callbacks."""
    names = func.__globals__
    walker.words |= refs.words
    if refs.words & _READERS_OF_PLACES or (refs.words & _HOLDERS_OF_CODE and _takes_code(func.__code__)):
        raise AmbientInput("the function reads line numbers or file names of code, which are not part of the key")
    if "__subclasses__" in refs.words:
        raise CaptureError("the function calls __subclasses__(), and subclasses are not captured")
    if reads_whole(refs, names):
        node.needs.append((whole(walker, names), True))
    for name in sorted(refs.globals):
        if name in handed:
            bind_for_client(walker, node, names, name)
        else:
            node.needs += [(bound, False) for bound in bind(walker, names, name, refs.globals[name])]
    if refs.relative:
        for name in ("__name__", "__package__"):
            node.needs += [(bound, False) for bound in bind(walker, names, name, {()})]
    home = names.get("__name__", "")
    bind_imports(walker, node, refs, names.get("__package__") or home)


def _takes_code(code: CodeType) -> bool:
    """Return whether code does more with a code object than to read an attribute that does not depend on its place.

    Code objects are equal only if their lines are.
    """
    for each in nested(code):
        if any(type(const) is str and const in _HOLDERS_OF_CODE for const in each.co_consts):
            return True
        for instruction, then in itertools.pairwise(dis.get_instructions(each)):
            if instruction.argval in _HOLDERS_OF_CODE and then.argval not in _PLACELESS:
                return True
    return False


def state_of(attributes: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes of a function or an object without those that wrappers copy to describe it."""
    is_wrapper = "__wrapped__" in attributes
    return {
        name: value
        for name, value in attributes.items()
        if name not in _DESCRIPTIVE and not (is_wrapper and name == "__annotations__")
    }


def _cell(walker: Walker, cell: CellType, name: str, later: Any = MISSING) -> Value:
    node = walker.value(cell)
    if isinstance(node, Node) and (not node.fills or is_client_only(node.fills[0].args[0])):
        node.fills.clear()
        content = content_of(cell) if later is MISSING else later
        if content is not MISSING:
            walker.watch.cell(cell)
            node.fill("set_cell", walker.value(content), label=f"closure {name}")
    return node


def _cells_after_trace(func: FunctionType) -> Mapping[str, Any]:
    """Return the cell contents that a trace under the current settings would store, by cell name.

    Functions made by `jax.shard_map` store their mesh and axes when they are first traced. A capture always holds these
    contents, so it is the same before and after the trace. The result is empty for other functions.
    """
    if func.__globals__.get("__name__") != _HOME_OF_SHARD_MAP or not {"mesh", "axis_names"} <= {
        *func.__code__.co_freevars
    }:
        return {}
    held = dict(zip(func.__code__.co_freevars, map(content_of, func.__closure__ or ()), strict=True))
    mesh, axis_names = held["mesh"], held["axis_names"]
    if mesh is None:
        mesh = sys.modules["jax"].sharding.get_abstract_mesh()
    names = getattr(mesh, "axis_names", ())
    if MISSING in (mesh, axis_names) or not names or not isinstance(axis_names, (set, frozenset)):
        return {}
    return {"mesh": mesh, "axis_names": frozenset(axis_names or names)}


def _held_by_client(walker: Walker, cell: CellType, name: str) -> Node:
    """Return the node of a cell whose content is only for callbacks, unless other code uses it."""
    node = walker.client_only_cell(cell)

    def look() -> None:
        if not node.fills and content_of(cell) is not MISSING:
            node.fill("set_cell", client_only(content_of(cell)))

    walker.on_idle(look)
    return node


@describes_as("cell", CellType)
def _bare_cell(walker: Walker, node: Node, cell: CellType) -> None:
    _cell(walker, cell, "cell")


@describes_as("method", MethodType, by_name=True)
def _method(walker: Walker, node: Node, method: MethodType) -> None:
    node.args = [walker.value(method.__func__), walker.value(method.__self__)]


@describes(BuiltinFunctionType)
def _builtin(walker: Walker, func: Any) -> Value:
    owner = func.__self__
    if owner is not None and not isinstance(owner, ModuleType):
        return Reduced("attribute", (walker.value(owner), func.__name__))
    home = home_of(func)
    return walker.by_reference(func) if home is None else walker.installed(home)
