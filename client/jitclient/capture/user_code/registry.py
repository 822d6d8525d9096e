"""Registration of classes with JAX as pytrees. Only this module reads JAX's own registry.

JAX has no public way to find the functions that flatten a class, and the daemon must register its copy in the same
way. A class cannot be captured if the registry does not show how it is registered.
"""

import dataclasses
import importlib
import inspect
import operator
import sys
from collections.abc import Callable, Mapping
from typing import Any

from jitclient.capture.user_code.installed import is_user_module
from jitclient.capture.user_code.ownership import (
    functions_in,
    has_private_globals,
    is_of_user_module,
    is_user_function,
)
from jitclient.errors import CaptureError

Registration = tuple[str, tuple[Any, ...]]


def registration_of(cls: type) -> Registration | None:
    """Return how to register a class again; None if it is not registered.

    The result is a kind of `_REGISTER` or "chex", and the arguments.

    Raises:
        CaptureError: this version of JAX does not show how the class is registered.
    """
    if _is_of_chex(cls):
        # chex registers a class when its first instance is made, so the state before and after would differ.
        return "chex", ()
    entry = _registry().get(cls)
    if entry is None:
        if is_registered(cls):
            raise CaptureError(f"this version of JAX does not show how {cls.__qualname__} is registered as a pytree")
        return None
    return _kind_of(cls, entry.to_iter, entry.from_iter)


def raise_if_registered(cls: type) -> None:
    """Check that the program did not register an installed class as a pytree; other processes lack the registration.

    Raises:
        CaptureError: user code registered the class.
    """
    entry = _registry().get(cls)
    if entry is None or cls.__module__ == "builtins":
        # JAX does not allow a second registration of its built-in types.
        return
    try:
        kind, given = _kind_of(cls, entry.to_iter, entry.from_iter)
    except CaptureError:
        # Classes that JAX registers itself do not show how.
        return
    by_hand = any(is_of_user_module(func) for each in given for func in functions_in(each))
    if by_hand or (kind in ("dataclass", "static") and cls.__module__.partition(".")[0] in sys.stdlib_module_names):
        raise CaptureError(f"user code registered an installed class as a pytree: {cls.__module__}.{cls.__qualname__}")


def nodes_by_hand(table: Any) -> Mapping[Any, Any] | None:
    """Return the rows of JAX's table about installed classes that another package or the program registered.

    A package that registers a class of its own may do so at the first instance, which a trace makes. Descriptions and
    captures of the user's classes say whether these are registered. Return None if this is not JAX's table.
    """
    if table is not _registry():
        return None
    return {
        cls: entry
        for cls, entry in dict(table).items()
        if not is_user_module(cls.__module__) and not _is_by_itself(cls, entry)
    }


def _is_by_itself(cls: type, entry: Any) -> bool:
    functions = [*functions_in(entry.to_iter), *functions_in(entry.from_iter)]
    top = cls.__module__.partition(".")[0]
    return _is_of_chex(cls) or any(str(each.__module__).partition(".")[0] == top for each in functions)


def is_node(cls: type) -> bool:
    """Return whether instances of a class are nodes of trees."""
    return is_registered(cls) or _is_of_chex(cls) or _base_of_distrax(cls) is not None


def _kind_of(cls: type, flatten: Any, unflatten: Any) -> Registration:
    place = getattr(flatten, "__qualname__", "").removeprefix("_")
    if place.startswith("register_dataclass."):
        data, meta = _closed_over(flatten, "data_fields"), _closed_over(flatten, "meta_fields")
        fields = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()
        dropped = tuple(field.name for field in fields if field.init and field.name not in {*data, *meta})
        return "dataclass", (tuple(data), tuple(meta), dropped)
    if place == "register_pytree_with_keys.<locals>.flatten_func_impl":
        keyed = _closed_over(flatten, "flatten_with_keys")
        if getattr(keyed, "__qualname__", "").removeprefix("_").startswith("register_static."):
            return "static", ()
        if isinstance(keyed, operator.methodcaller):
            return "class_with_keys", ()
        return "keys", (keyed, unflatten)
    if isinstance(flatten, operator.methodcaller):
        return ("class_with_keys" if hasattr(cls, "tree_flatten_with_keys") else "class"), ()
    if getattr(flatten, "__module__", "") == "jax._src.tree_util":
        raise CaptureError(f"this version of JAX does not show how {cls.__qualname__} is registered as a pytree")
    return "node", (flatten, unflatten)


def _closed_over(func: Any, name: str) -> Any:
    return inspect.getclosurevars(func).nonlocals[name]


def register(cls: type, kind: str, arguments: tuple[Any, ...]) -> None:
    """Register a class again, unless making the class has registered it."""
    if kind == "chex":
        _register_with_chex(cls)
    elif not is_registered(cls):
        from jax import tree_util

        getattr(tree_util, _REGISTER[kind])(cls, *arguments)


_REGISTER = {
    "class": "register_pytree_node_class",
    "class_with_keys": "register_pytree_with_keys_class",
    "dataclass": "register_dataclass",
    "keys": "register_pytree_with_keys",
    "node": "register_pytree_node",
    "static": "register_static",
}


def register_late(cls: type) -> None:
    """Register a class whose library does so at its first instance, which this process may not have made."""
    if base := _base_of_distrax(cls):
        base.__new__(cls)
    elif _is_of_chex(cls):
        _register_with_chex(cls)


def _base_of_distrax(cls: type) -> Any:
    place = "distrax._src.utils.jittable", "Jittable"
    return next((base for base in cls.__mro__ if (base.__module__, base.__name__) == place), None)


def _is_of_chex(cls: type) -> bool:
    init: Any = vars(cls).get("__init__")
    return bool(getattr(init, "__globals__", {}).get("__name__") == "chex._src.dataclass")


def _register_with_chex(cls: type) -> None:
    module: Any = importlib.import_module("chex._src.dataclass")
    module.register_dataclass_type_with_jax_tree_util(cls)


def is_flattened_by_user(cls: type) -> bool:
    """Return whether user code flattens a class that is registered as a pytree; on the daemon, its captured code."""
    methods = [getattr(cls, name, None) for name in ("tree_flatten", "tree_flatten_with_keys")]
    given = [getattr(_registry().get(cls), "to_iter", None), *methods]
    return any(is_user_function(func) or has_private_globals(func) for each in given for func in functions_in(each))


def is_registered(cls: type) -> bool:
    """Return whether a class is registered with JAX as a pytree."""
    tree_util = sys.modules.get("jax.tree_util")
    if tree_util is None:
        return False
    # JAX calls every named tuple a node.
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return cls in _registry()
    try:
        return bool(tree_util.default_registry.is_node(cls))
    except (AttributeError, TypeError):
        return cls in _registry()


def unflatten_of_named_tuple(cls: type) -> Callable[[Any, Any], Any] | None:
    """Return the function that the program registered to unflatten a named tuple; None for any other class."""
    is_registered_one = issubclass(cls, tuple) and cls in _registry() and hasattr(cls, "_fields")
    return _registry()[cls].from_iter if is_registered_one else None


def _registry() -> dict[Any, Any]:
    """Return JAX's table of registered classes; empty if this JAX has no such table."""
    table = getattr(sys.modules.get("jax._src.tree_util"), "_registry", None)
    return table if isinstance(table, dict) else {}
