"""The names of data that code reads: in an installed package's own modules, and in those that user code refers to."""

import builtins
import functools
import importlib.util
import sys
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from types import CodeType, FunctionType, ModuleType
from typing import Any

from jitclient.capture.ambient.inputs import HARMLESS, RANDOM_FRAME_MODULES, ambient_name, clock_of
from jitclient.capture.codec.plain import is_plain
from jitclient.capture.manifest.definitions import is_class_data, is_data
from jitclient.capture.manifest.places import (
    ABSENT,
    CACHE,
    LOADED,
    MODULES,
    NAMES,
    SUBCLASSES,
    attribute,
    fields_of,
    is_foundation,
    is_of_python,
    is_package,
    is_users,
    module_of,
    mro,
    name_of,
    resolve,
)
from jitclient.capture.user_code.bytecode import Chain, nested, own_refs_of, reads_whole, refs_of
from jitclient.capture.user_code.names import constant_home

Names = dict[str, Any]
"""The globals of a module."""

_NAMESPACE_READERS = frozenset({"getattr", "hasattr", "vars", "globals", "locals", "eval", "exec", "dir", "__dict__"})
_LISTS = frozenset({"dir", "vars", "__dict__"})
_ERRORS = frozenset({"AttributeError", "ImportError", "ModuleNotFoundError", "Exception", "BaseException"})
"""Errors that code expects if it asks for a name that may be absent."""
_MODULE_READERS = frozenset({"__import__", "import_module", "modules", "resolve_name"})
_KEPT_TRACES = frozenset({"PjitFunction", "_lru_cache_wrapper", "custom_jvp", "custom_vjp"})
"""Types of functions whose code JAX or Python need not run again, because traces or results are stored."""

_MAX_SUBCLASSES = 200
_CONTAINERS = frozenset({dict, list, set, tuple, frozenset})
_IMMUTABLE = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE: no attribute can be set


def is_observed(code: CodeType, names: Names) -> bool:
    """Return whether code may read the state of packages for a trace: code of packages and users, but not imports."""
    module = names.get("__name__")
    return _is_observed(module) and code.co_name != "<module>" if isinstance(module, str) else False


@functools.cache
def _is_observed(module: str) -> bool:
    is_finder = any(type(finder).__module__ == module for finder in sys.meta_path)
    return not is_finder and not is_foundation(module) and (is_package(module) or is_users(module))


def names_read(code: CodeType, names: Names, within: frozenset[int] = frozenset()) -> set[str]:
    """Return the names of the data of installed packages that code reads.

    Args:
        code: The code.
        names: The globals with which it runs.
        within: Ids of the functions with stored traces that refer to this code, which are not followed again.
    """
    found: set[str] = set()
    for name, chains in refs_of(code).globals.items():
        for chain in chains:
            place, value = _end_of(names, name, chain)
            if place:
                found.add(place)
                found |= _names_below(place, value, within)
                if SUBCLASSES in refs_of(code).words and issubclass(type(value), type):
                    found.add(f"{place}.{SUBCLASSES}")
    found |= _names_of_modules(code, names)
    found |= set(_asked_of_foundations(code, names))
    if "modules" in refs_of(code).words:
        found |= {f"{text}:{LOADED}" for text in _texts_in(code) if text.replace(".", "").isidentifier()}
    if is_package(names.get("__name__")):
        found |= _names_of_definition(code, names)
    return found


def ambient_of(code: CodeType, names: Names) -> str:
    """Return the name of an input from outside of the interpreter that `code` refers to, or "".

    A context variable to which a name leads is no such input, since the manifest has its value.
    """
    if names.get("__name__") in RANDOM_FRAME_MODULES:
        return ""
    for name, chains in own_refs_of(code).globals.items():
        for chain in chains:
            place, end = _end_of(names, name, chain)
            described = end if place and type(end) is ContextVar else ABSENT
            value = names.get(name, vars(builtins).get(name, ABSENT))
            for part in (*chain, None):
                # Only for values of these types does `ambient_name` run no code of a package.
                is_known = value is not ABSENT and is_foundation(module_of(type(value)))
                found = ambient_name(value) if is_known else None
                if found is not None and found not in HARMLESS and value is not described:
                    return found
                if part is not None and (clock := clock_of(value, part)):
                    return clock
                value = ABSENT if value is ABSENT or part is None else attribute(value, part)
    return ""


def _end_of(names: Names, name: str, chain: Chain) -> tuple[str, Any]:
    """Follow a chain of attributes to data of a package. Return the data's name, "" if there is none, and the value."""
    value = names.get(name, ABSENT)
    place = _place_of_global(names, name, value)
    for part, after in zip(chain, (*chain[1:], ""), strict=False):
        if part == "__dict__":
            break
        below = attribute(value, part)
        is_module = issubclass(type(value), ModuleType)
        if below is ABSENT and place and issubclass(type(value), threading.local):
            # Each thread makes this attribute on first use.
            return f"{place}.{part}", below
        if below is ABSENT and is_module and _is_installed(value):
            place = f"{_name(value)}:{part}"
            return "" if is_foundation(_name(value)) or is_of_python(part) else place, below
        has_data = type(below) is FunctionType and after in fields_of(below)
        if below is ABSENT or not (is_module or (place and (has_data or is_data(below)))):
            break
        place = f"{_name(value)}:{part}" if is_module and _is_installed(value) else place and f"{place}.{part}"
        value = below
    if issubclass(type(value), ModuleType) or is_of_python(place.rpartition(".")[2].rpartition(":")[2]):
        return "", value
    return ("" if _is_code_of_foundation(place, value) else place), value


def _place_of_global(names: Names, name: str, value: Any) -> str:
    """Return the name of the value of a global, if the value is in a package, else ""."""
    module = names.get("__name__")
    if is_package(module):
        return "" if value is ABSENT and name in vars(builtins) else f"{module}:{name}"
    # User code refers to objects of packages, which its capture contains by name.
    return "" if value is ABSENT else _home_of(value)


def _home_of(value: Any) -> str:
    kind = type(value)
    if is_plain(value):
        return ""
    if kind is FunctionType:
        place = f"{value.__module__}:{value.__qualname__}"
    elif issubclass(kind, type):
        place = _place_of_class(value)
    else:
        place = ":".join(constant_home(value) or ()) if is_package(module_of(kind)) else ""
    return place if is_package(place.partition(":")[0]) and resolve(place) is value else ""


def _is_installed(module: ModuleType) -> bool:
    """Return whether names can begin with a module: modules made by user packages or scripts cannot be imported."""
    name = fields_of(module).get("__name__")
    return sys.modules.get(name) is module and (is_package(name) or is_foundation(name))  # type: ignore[arg-type]


def _is_code_of_foundation(place: str, value: Any) -> bool:
    return is_foundation(place.partition(":")[0]) and not is_plain(value)


def _names_below(place: str, value: Any, within: frozenset[int]) -> set[str]:
    """Return the names of data read below a function whose trace or results may be stored.

    If any of these is state, include the name of the function's cache.
    """
    if type(value).__name__ not in _KEPT_TRACES or id(value) in within:
        return set()
    found: set[str] = set()
    for function in functions_below(value):
        found |= names_read(function.__code__, function.__globals__, within | {id(value)})
    if any(is_data(resolve(name)) for name in found):
        found.add(f"{place}.{CACHE}")
    return found


def functions_below(value: Any) -> list[FunctionType]:
    """Return the functions of packages that a function wraps, and those that they refer to, transitively."""
    found: dict[int, FunctionType] = {}
    todo = [value]
    while todo:
        function = todo.pop()
        todo += [inner for name in ("__wrapped__", "fun") if (inner := _wrapped(function, name)) is not ABSENT]
        if type(function) is FunctionType and id(function) not in found and is_package(function.__module__):
            found[id(function)] = function
            names = function.__globals__
            todo += [names[name] for name in refs_of(function.__code__).globals if name in names]
    return list(found.values())


def _wrapped(function: Any, name: str) -> Any:
    # The type is made in C, and its instances have no dictionary to read.
    if type(function).__name__ == "PjitFunction":
        return getattr(function, name, ABSENT)
    return ABSENT if issubclass(type(function), (type, ModuleType)) else fields_of(function).get(name, ABSENT)


def _names_of_modules(code: CodeType, names: Names) -> set[str]:
    """Return the names of data in modules that code may use as a whole, and in its own if it reads its namespace."""
    refs = refs_of(code)
    ends = [_whole(names.get(name), chain) for name, chains in refs.globals.items() for chain in chains]
    whole = [each for each in ends if issubclass(type(each), ModuleType)]
    imported = list(_modules_imported(code, names))
    if not _NAMESPACE_READERS.isdisjoint(refs.words):
        whole += imported
    if reads_whole(refs, names):
        whole.append(sys.modules.get(names.get("__name__", "")))
    listed = whole if _ERRORS.isdisjoint(refs.words) else [*whole, *imported]
    found = {f"{_name(each)}:{name}" for each in whole for name in _data_of(each)}
    found |= {f"{_name(each)}:{NAMES}" for each in listed if is_package(fields_of(each).get("__name__"))}
    return found | {
        f"{_name(each)}:{name}"
        for each in _with_submodules(imported, refs.words)
        for name in refs.words & fields_of(each).keys()
        if not is_of_python(name) and not issubclass(type(fields_of(each)[name]), ModuleType)
    }


def _asked_of_foundations(code: CodeType, names: Names) -> Iterator[str]:
    """Yield the names of data that code may ask of modules and classes of JAX, numpy or Python, and may miss there.

    The program may have put it there. It is asked for by text, as in `getattr(jnp, "gain", 1.0)`, or in a `try`.
    """
    refs = refs_of(code)
    tries, asks = (not refs.words.isdisjoint(words) for words in (_ERRORS, _NAMESPACE_READERS))
    if not (tries or asks):
        return
    read = [(names.get(name), (*chain, "")) for name, chains in refs.globals.items() for chain in chains]
    read += [(sys.modules.get(name), (part,)) for name, _, parts in refs.imports for part in (parts or ("",))]
    for owner, chain in read:
        for part in chain:
            place = _place_in_foundation(owner)
            if not place:
                break
            if tries and part and _may_be_set(owner, part):
                yield place + part
            if asks and part in ("", "__dict__"):
                yield from (
                    place + text for text in _texts_in(code) if text.isidentifier() and _may_be_set(owner, text)
                )
                if place.endswith(":") and not refs.words.isdisjoint(_LISTS):
                    yield place + NAMES
            owner = attribute(owner, part)


def _place_in_foundation(owner: Any) -> str:
    """Return how names of data begin that programs can put on a module or class of a foundation; "" for all else.

    JAX's own classes are searched for what the program has put there (`ambient/patches.py`).
    """
    if issubclass(type(owner), ModuleType):
        name = fields_of(owner).get("__name__")
        return f"{name}:" if is_foundation(name) else ""
    is_open = issubclass(type(owner), type) and not owner.__flags__ & _IMMUTABLE
    is_searched = not is_open or not is_foundation(module_of(owner)) or module_of(owner).startswith("jax")
    return "" if is_searched else f"{_place_of_class(owner)}."


def _may_be_set(owner: Any, word: str) -> bool:
    value = attribute(owner, word)
    is_value = value is ABSENT or is_plain(value) or attribute(type(value), "__array__") is not ABSENT
    return not is_of_python(word) and (is_value or type(value) in _CONTAINERS)


def _texts_in(code: CodeType) -> Iterator[str]:
    yield from (const for each in nested(code) for const in each.co_consts if type(const) is str)


def _with_submodules(modules: list[ModuleType], words: set[str]) -> list[ModuleType]:
    """Return modules of packages, and the modules that they hold under one of the words, transitively."""
    found = {id(each): each for each in modules}
    todo = list(modules)
    while todo:
        held = fields_of(todo.pop())
        below = [held[word] for word in words & held.keys() if issubclass(type(held[word]), ModuleType)]
        new = [each for each in below if id(each) not in found and is_package(fields_of(each).get("__name__"))]
        found.update((id(each), each) for each in new)
        todo += new
    return list(found.values())


def _name(module: Any) -> str:
    name: str = fields_of(module)["__name__"]
    return name


def _whole(value: Any, chain: Chain) -> Any:
    """Return the value at the end of a chain, or that whose namespace the chain reads."""
    for part in chain:
        if part == "__dict__":
            break
        value = attribute(value, part)
    return value


def _data_of(module: Any) -> list[str]:
    held = fields_of(module) if module is not None else {}
    if not is_package(held.get("__name__")):
        return []
    return [name for name, value in dict(held).items() if not is_of_python(name) and is_data(value)]


def _modules_imported(code: CodeType, names: Names) -> Iterator[ModuleType]:
    """Yield the loaded modules of packages that code imports in its body, or looks up by a constant name."""
    if not _MODULE_READERS.isdisjoint(refs_of(code).words):
        own = {names["__name__"]} if "__name__" in refs_of(code).words else set()
        named = {const.partition(":")[0] for const in _texts_in(code)} | own
        yield from (sys.modules[name] for name in sorted(named) if name in sys.modules and is_package(name))
    for name, level, wanted in refs_of(code).imports:
        full = f"{'.' * level}{name}"
        try:
            full = importlib.util.resolve_name(full, names.get("__package__")) if level else name
        except ImportError:
            continue
        parts = full.split(".")
        above = [".".join(parts[:n]) for n in range(1, len(parts) + 1)]
        for each in (*above, *(f"{full}.{part}" for part in wanted)):
            module = sys.modules.get(each)
            if isinstance(module, ModuleType) and is_package(each):
                yield module


def _names_of_definition(code: CodeType, names: Names) -> set[str]:
    """Return the names of the function that code is the body of, and of the class data that it may read by `self`."""
    module, path = names["__name__"], code.co_qualname
    found = {f"{module}:{MODULES}"}
    if "<" in path:
        return found
    found.add(f"{module}:{path}")
    owner = resolve(f"{module}:{path.rpartition('.')[0]}") if "." in path else ABSENT
    if issubclass(type(owner), type):
        words = refs_of(code).words
        users = {base for cls in _users_subclasses(owner) for base in mro(cls) if is_package(module_of(base))}
        found |= {place for cls in {owner, *users} for place in _attributes_of(cls, words)}
        if not words.isdisjoint(_NAMESPACE_READERS | _ERRORS):
            found |= {_place_of_class(cls) for cls in {owner, *users} if "<" not in name_of(cls)}
        if SUBCLASSES in words:
            found.add(f"{_place_of_class(owner)}.{SUBCLASSES}")
    return found


def _place_of_class(cls: type) -> str:
    return f"{module_of(cls)}:{name_of(cls)}"


def _users_subclasses(cls: type) -> list[type]:
    """Return the user's subclasses of a package's class: their other bases may define attributes that it reads."""
    found: list[type] = []
    todo = [cls]
    while todo and len(found) < _MAX_SUBCLASSES:
        below: list[type] = type.__subclasses__(todo.pop())
        todo += below
        found += [each for each in below if is_users(module_of(each))]
    return found


def _attributes_of(cls: type, words: set[str]) -> Iterator[str]:
    """Yield the names of data and methods, among the given words, that a class has or inherits."""
    if "<" not in name_of(cls):
        for word in words:
            value = attribute(cls, word)
            if type(value) is FunctionType or (value is not ABSENT and is_class_data(word, value)):
                yield f"{_place_of_class(cls)}.{word}"
