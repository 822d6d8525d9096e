"""Descriptions of functions and classes as plain tuples: their process-independent identity, and their settings."""

import contextlib
import functools
import importlib.util
import marshal
import operator
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import CodeType, FunctionType, GetSetDescriptorType, MemberDescriptorType, ModuleType
from typing import Any

from jitclient.capture.manifest.places import (
    bases_of,
    class_dict,
    fields_of,
    is_computed,
    is_foundation,
    is_users,
    module_of,
    name_of,
)
from jitclient.capture.user_code.bytecode import refs_of
from jitclient.capture.user_code.code import Kept, canonical_code
from jitclient.capture.user_code.names import MISSING, content_of, lookup
from jitclient.capture.user_code.ownership import functions_in
from jitclient.capture.user_code.registry import is_node
from jitclient.core.digests import digest

Tree = Any
"""A description: a plain value, or a tuple that begins with its kind."""

FIELDS = "fields"
"""The kind of a description that lists names, each with the description of its value."""

Describe = Callable[[Any], Tree]

_CODE = (FunctionType, staticmethod, classmethod, property)
_MEMBERS = (MemberDescriptorType, GetSetDescriptorType)
_REWRITABLE = (functools.cached_property, functools.partialmethod)
_CACHES_OF_DISPATCH = frozenset({"_clear_cache", "cache_token", "dispatch_cache"})
"""Parts of a function of `functools.singledispatch` that follow from its registry and from which types it has met."""

_MAX_CLASSES = 10_000
# Entries of both tables are stored under ids, and hold the object so that no other object can get the same id.
_described_of: dict[int, tuple[type, list[Any], tuple[str, ...]]] = {}
_codes: dict[int, tuple[CodeType, bytes]] = {}


def bytes_of(tree: Tree) -> bytes:
    """Return a description as bytes; empty if a name in it is of a type derived from `str`.

    Version 2 of marshal's format does not depend on which objects are shared or interned.
    """
    try:
        return marshal.dumps(tree, 2)
    except ValueError:
        return b""


def _is_named(function: FunctionType, module: str, name: str) -> bool:
    """Return whether a name leads to a function; that of a wrapper may lead to what it wraps."""
    return "<locals>" not in name and any(each is function for each in functions_in(lookup(module, name)))


def function_tree(function: FunctionType, describe: Describe) -> Tree:
    """Return the description of a function: its definition, its code, and the data in defaults, closure and attributes.

    Functions of JAX's own stack and the standard library are described by module and name alone.
    """
    module, name, code = str(function.__globals__.get("__name__")), function.__qualname__, function.__code__
    if is_foundation(module) and _is_named(function, module, name):
        return ("function", module, name)
    caches = _CACHES_OF_DISPATCH if function.__globals__ is vars(functools) else frozenset()
    held: list[tuple[str, Any]] = [
        ("defaults", function.__defaults__),
        ("keywords", function.__kwdefaults__),
        ("own", {n: v for n, v in vars(function).items() if n not in caches and not _is_own_id(v, function)}),
    ]
    if function.__closure__:
        cells = zip(code.co_freevars, function.__closure__, strict=True)
        held.append(("closure", [content_of(cell) for each, cell in cells if each not in caches]))
    if not is_users(module):
        rows = (FIELDS, *((part, describe(value)) for part, value in held if value))
        return ("function", module, name, code_digest(code), rows)
    held.append(("globals", list(_read_by(function))))
    # The canonical code has no line numbers, so an edit that only moves the function changes nothing.
    return (
        "function",
        "",
        name,
        digest(canonical_code(code, Kept(locals=True)).blob),
        (FIELDS, *((p, describe(v)) for p, v in held if v)),
    )


def _read_by(function: FunctionType) -> Iterator[Any]:
    """Yield what a user's function reads: globals, and what these and imports lead to in the user's own modules."""
    refs, names = refs_of(function.__code__), function.__globals__
    read = [(names[name], chain) for name in sorted(refs.globals) if name in names for chain in refs.globals[name]]
    for name, level, wanted in refs.imports:
        with contextlib.suppress(ImportError):
            full = importlib.util.resolve_name(f"{'.' * level}{name}", names.get("__package__")) if level else name
            read += [(sys.modules[full], (each,)) for each in wanted or ("",) if full in sys.modules]
    for value, chain in sorted(read, key=operator.itemgetter(1)):
        for part in chain:
            if not issubclass(type(value), ModuleType) or not is_users(fields_of(value).get("__name__")):
                break
            value = fields_of(value).get(part, value)
        yield value


def code_digest(code: CodeType) -> bytes:
    """Return the digest of a code object of a package, computed once per process."""
    known = _codes.get(id(code))
    if known is None:
        known = _codes[id(code)] = code, digest(bytes_of(_code_tree(code)))
    return known[1]


def _code_tree(code: CodeType) -> Tree:
    return (code.co_code, code.co_names, code.co_freevars, _constant(code.co_consts))


def _constant(value: Any) -> Tree:
    if type(value) is CodeType:
        return code_digest(value)
    if type(value) is tuple:
        return ("tuple", *map(_constant, value))
    if type(value) is frozenset:
        return ("frozenset", *sorted(map(bytes_of, map(_constant, value))))
    return ("slice", repr(value)) if type(value) is slice else value


def class_tree(cls: type, describe: Describe) -> Tree:
    """Return the description of a class: its definition, and the data that it and its bases hold.

    The description of a user's class includes its code.
    """
    module, name = module_of(cls), name_of(cls)
    if is_foundation(module):
        return ("class", module, name)
    held = class_dict(cls)
    rows = (FIELDS, *((attribute, describe(held[attribute])) for attribute in _described(cls, held, module)))
    above = [base for base in (*bases_of(cls), type(cls)) if not is_foundation(module_of(base))]
    if is_users(module):
        return ("class", "", name, is_node(cls), rows, *map(describe, above))
    return ("class", module, name, rows, *map(describe, above))


def _described(cls: type, held: Mapping[str, Any], module: str) -> tuple[str, ...]:
    """Return the names of the attributes that are part of a class's description.

    The result is stored for as long as the class holds the same objects.
    """
    known = _described_of.get(id(cls))
    if known is None or len(known[1]) != len(held) or not all(map(operator.is_, known[1], held.values())):
        # No name leads to the methods of these classes, so the description must include them.
        is_whole = is_users(module) or "<locals>" in name_of(cls)
        code, top, inner = _CODE if is_whole else (), module.partition(".")[0], f"{name_of(cls)}."
        names = sorted(
            name
            for name, value in held.items()
            if type(value) in code
            or (is_class_data(name, value) and not _is_own_id(value, cls))
            or _is_foreign_code(value, top)
            or _has_state(value)
            or any(function.__qualname__ != inner + name for function in _functions_of(value))
            or _has_defaults_of_no_code(value, inner + name)
            or (issubclass(type(value), type) and name_of(value).startswith(inner))
        )
        if len(_described_of) >= _MAX_CLASSES:
            _described_of.clear()
        known = _described_of[id(cls)] = cls, list(held.values()), tuple(names)
    return known[2]


def _functions_of(value: Any) -> Iterable[FunctionType]:
    """Return the functions of a method or a property; those of other values are described with them."""
    return [value] if type(value) is FunctionType else functions_in(value) if type(value) in _CODE else ()


def _has_defaults_of_no_code(value: Any, path: str) -> bool:
    """Return whether a method has default arguments, and no code with its name, as those that dataclasses make."""
    functions = list(functions_in(value)) if type(value) in _CODE else []
    has_defaults = any(function.__defaults__ or function.__kwdefaults__ for function in functions)
    return has_defaults and all(function.__code__.co_qualname != path for function in functions)


def _has_state(value: Any) -> bool:
    """Return whether an attribute of a class is a descriptor of a package, which may hold what it computes from."""
    is_of_foundation = is_foundation(module_of(type(value)))
    return not is_of_foundation and is_computed(value) and bool(fields_of(value))


def _is_own_id(value: Any, owner: Any) -> bool:
    """Return whether a value is the id of its owner, which differs in each process: Keras notes it for all its API."""
    return type(value) is int and value == id(owner)


def is_class_data(name: str, value: Any) -> bool:
    """Return whether an attribute of a class is data, and not code or an attribute made by the interpreter."""
    kind = type(value)
    if kind in _CODE or kind in _MEMBERS or name.startswith("__") or name == "_abc_impl":
        return False
    return is_data(value) and not is_computed(value)


def _is_foreign_code(value: Any, top: str) -> bool:
    """Return whether an attribute of a package's class is code of another package or of the user.

    Return True, too, for wrappers whose function may be replaced in place.
    """
    if type(value) is FunctionType:
        return str(value.__module__).partition(".")[0] != top
    return type(value) in _REWRITABLE or any(_is_foreign_code(function, top) for function in functions_in(value))


def is_data(value: Any) -> bool:
    """Return whether a value is neither code nor a class nor a module."""
    return value is not MISSING and not issubclass(type(value), (*_CODE, type, ModuleType))
