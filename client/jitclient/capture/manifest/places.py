"""Locations of data: names such as "module:path.of.attributes", resolved without running any code of a package."""

import builtins
import contextlib
import enum
import functools
import gc
import importlib
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType, GetSetDescriptorType, MemberDescriptorType, ModuleType
from typing import Any

from jitclient.capture.codec.plain import is_plain
from jitclient.capture.user_code.installed import OWN_PACKAGES, is_user_module, package_of

ABSENT: Any = object()
"""Stands for the value of a name that leads to no value."""

FOUNDATIONS = frozenset({"jax", "jaxlib", "numpy", "scipy", "ml_dtypes", "opt_einsum", "jax_plugins"})
"""Packages whose settings are part of the context. Of their modules, only plain constants are described."""

_NEEDED_BY_US = frozenset({"click", "cloudpickle", "flatbuffers", "msgspec", "platformdirs", "rich", "rpyc", "tblib"})

CACHE = "__cache__"
"""The last part of a name that means the contents of a function's cache."""

LOADED = "__loaded__"
"""The last part of a name that means whether a module is loaded."""

MODULES = "__modules__"
"""The last part of a name that means the modules among the globals of a module, and the globals that hide builtins."""

NAMES = "__names__"
"""The last part of a name that means the list of a module's globals: which there are, and which code each is."""

OWN = "__own__"
"""The last part of a name that means the attributes of a class or function, so far as these are plain."""

SUBCLASSES = "__subclasses__"
"""The last part of a name that means the subclasses of a class."""

CHANGED_PLACES = "~"
"""Separates a name from the places of the counters and caches in its value, which a trace changes."""

IMPORTED = "+"
"""The first character of a name whose module the trace imported, as it would in every process."""

_ATOMS = (type(None), bool, int, float, complex, str, bytes)
_MAX_NUMBER = 1 << 32

_OF_C = (GetSetDescriptorType, MemberDescriptorType)
_BOUND = (FunctionType, staticmethod, classmethod)
_CLASS_DICT = type.__dict__["__dict__"]
_MODULE_DICT: Any = vars(ModuleType)["__dict__"]
_CLASS_BASES = type.__dict__["__bases__"]
_CLASS_MRO = type.__dict__["__mro__"]
_CLASS_MODULE = type.__dict__["__module__"]
_CLASS_NAME = type.__dict__["__qualname__"]


@functools.cache
def is_package(module: object) -> bool:
    """Return whether a module belongs to an installed package whose state is in no capture and no context."""
    if not isinstance(module, str):
        return False
    top = module.partition(".")[0]
    if top in _NEEDED_BY_US or top in OWN_PACKAGES or is_foundation(top):
        return False
    # A namespace package may have modules of both kinds.
    return package_of(top) is not None and not is_user_module(module)


@functools.cache
def is_foundation(module: object) -> bool:
    """Return whether a module belongs to JAX, to a package that JAX depends on, or to the standard library."""
    top = module.partition(".")[0] if isinstance(module, str) else ""
    return top in FOUNDATIONS or top in sys.stdlib_module_names


@functools.cache
def is_users(module: object) -> bool:
    """Return whether a module is user code, which captures contain by value."""
    return not is_package(module) and not is_foundation(module) and is_user_module(module)


def resolve(name: str) -> Any:
    """Return the value that a name leads to, or ABSENT. The module is imported only if the trace imported it."""
    module, parts = _parts_of(name)
    if name.startswith(IMPORTED):
        _import(module)
    value: Any = sys.modules.get(module, ABSENT)
    for part in parts:
        computed = _COMPUTED.get(part)
        value = computed(value) if computed is not None else attribute(value, part)
        if value is ABSENT:
            break
    # Which submodules of these are loaded does not count.
    is_submodule = bool(parts) and issubclass(type(value), ModuleType) and is_foundation(module)
    return ABSENT if is_submodule else value


def plain_name(name: str) -> str:
    """Return a name without the parts that describe its value or its import."""
    return name.partition(CHANGED_PLACES)[0].removeprefix(IMPORTED)


def path_of(name: str) -> str:
    """Return a name as a program would write it: `package.module.SETTING`."""
    return plain_name(name).replace(":", ".")


@functools.lru_cache(maxsize=10_000)
def _parts_of(name: str) -> tuple[str, tuple[str, ...]]:
    module, _, path = plain_name(name).partition(":")
    return module, tuple(path.split(".")) if path else ()


def is_of_thread(name: str) -> bool:
    """Return whether a name leads to thread-local data, which each thread makes on first use."""
    owner, dot, _ = plain_name(name).rpartition(".")
    return bool(dot) and ":" in owner and issubclass(type(resolve(owner)), threading.local)


def _import(name: str) -> None:
    if name not in sys.modules and is_package(name):
        with contextlib.suppress(Exception, SystemExit):
            importlib.import_module(name)


def attribute(value: Any, name: str) -> Any:
    """Return the value that a module, class or instance holds under a name, or ABSENT if code would have to run.

    A module whose `__getattr__`, for the names that it lacks, is not its package's own has this function there.
    """
    kind = type(value)
    if issubclass(kind, type):
        return _class_attribute(value, name)
    held = fields_of(value)
    if name in held:
        return held[name]
    if issubclass(kind, ModuleType):
        found = held.get("__getattr__", ABSENT)
        made, own = (str(name).partition(".")[0] for name in (getattr(found, "__module__", None), held.get("__name__")))
        return ABSENT if made == own else found
    found = _class_attribute(kind, name)
    if type(found) is MemberDescriptorType:
        return _content_of(found, value)
    return ABSENT if found is ABSENT or is_computed(found) else found


def is_of_python(name: str) -> bool:
    """Return whether a name is one of those that Python sets, such as `__doc__`."""
    return name.startswith("__") and name.endswith("__") and name != "__all__"


def is_computed(found: Any) -> bool:
    """Return whether a class attribute is a descriptor, which computes the attribute of an instance."""
    return type(found) not in _BOUND and _class_attribute(type(found), "__get__") is not ABSENT


def _class_attribute(cls: type, name: str) -> Any:
    for base in mro(cls):
        held = class_dict(base)
        if name in held:
            return held[name]
    return ABSENT


def mro(cls: type) -> tuple[type, ...]:
    """Return the method resolution order of a class, regardless of its metaclass; empty while the class is made."""
    found: tuple[type, ...] | None = _CLASS_MRO.__get__(cls)
    return found or ()


def bases_of(cls: type) -> tuple[type, ...]:
    """Return the direct bases of a class, regardless of its metaclass."""
    found: tuple[type, ...] = _CLASS_BASES.__get__(cls)
    return found


def class_dict(cls: type) -> Mapping[str, Any]:
    """Return the attributes of a class itself, regardless of its metaclass."""
    found: Mapping[str, Any] = _CLASS_DICT.__get__(cls)
    return found


def module_of(cls: type) -> str:
    """Return the module name that a class stores, or "" if it is no string."""
    found = _CLASS_MODULE.__get__(cls)
    return found if type(found) is str else ""


def name_of(cls: type) -> str:
    """Return the qualified name of a class, regardless of its metaclass."""
    found: str = _CLASS_NAME.__get__(cls)
    return found


def fields_of(value: Any) -> dict[str, Any]:
    """Return the attributes that an instance holds in its dictionary; empty if it has none."""
    held: Any
    if type(value) is ModuleType:
        held = _MODULE_DICT.__get__(value)
    elif issubclass(type(value), threading.local):
        held = threading.local.__getattribute__(value, "__dict__")
    else:
        descriptor = _class_attribute(type(value), "__dict__")
        held = descriptor.__get__(value) if type(descriptor) in _OF_C else None
    return held if type(held) is dict else {}


def slots_of(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the attributes that an instance holds in slots."""
    for base in mro(type(value)):
        for name, descriptor in class_dict(base).items():
            if type(descriptor) is MemberDescriptorType:
                content = _content_of(descriptor, value)
                if content is not ABSENT:
                    yield name, content


def _content_of(slot: MemberDescriptorType, value: Any) -> Any:
    try:
        return slot.__get__(value)
    except AttributeError:
        return ABSENT


def _cache_of(function: Any) -> Any:
    """Return the plain contents of a function's cache; for a jitted function, whether its cache holds anything."""
    if type(function) is functools._lru_cache_wrapper:
        held = gc.get_referents(function)
        results = [value for each in held if type(each) is dict for value in each.values()]
        return frozenset((type(each).__name__, each) for each in [*held, *results] if is_plain(each))
    size = getattr(function, "_cache_size", None) if is_foundation(module_of(type(function))) else None
    return ABSENT if size is None else size() > 0


def _modules_of(module: Any) -> Any:
    held = fields_of(module)
    rows = _names_of(module)
    return tuple(row for row in rows if row[0] in vars(builtins) or type(held.get(row[0])) is ModuleType)


def _names_of(module: Any) -> Any:
    """Return the names of a module's globals, each with the module, function or class that it leads to.

    The list has no submodules, which any later import may add.
    """
    held = fields_of(module)
    rows = ((name, _code_at(value)) for name, value in dict(held).items() if not is_of_python(name))
    return tuple(row for row in rows if row[1] != f"{held.get('__name__')}.{row[0]}")


def _code_at(value: Any) -> Any:
    """Return the name of a module, or of a function or class of a package; those of the user; None for all else."""
    kind = type(value)
    if issubclass(kind, ModuleType):
        return fields_of(value).get("__name__")
    if kind is not FunctionType and not issubclass(kind, type):
        return None
    module, name = (
        (value.__module__, value.__qualname__) if kind is FunctionType else (module_of(value), name_of(value))
    )
    return value if is_users(module) else f"{module}:{name}"


def _subclasses_of(cls: Any) -> Any:
    if not issubclass(type(cls), type):
        return ABSENT
    found: list[type] = []
    todo = [cls]
    while todo:
        below = type.__subclasses__(todo.pop())
        found += below
        todo += below
    return tuple(map(_code_at, found))


def _own_of(value: Any) -> Any:
    """Return the plain attributes of a class with its bases, of a function with its defaults, or of a wrapper.

    Those with two underscores are Python's. Large numbers do not count, which may be hashes or addresses.
    """
    held: list[Mapping[Any, Any]] = [fields_of(value)]
    if issubclass(type(value), type):
        held = [class_dict(base) for base in mro(value)]
    elif type(value) is FunctionType:
        held += [{str(n): each for n, each in enumerate(value.__defaults__ or ())}, value.__kwdefaults__ or {}]
    elif type(value) is not functools._lru_cache_wrapper and not isinstance(value, enum.Enum):
        held = held if type(value).__name__ == "PjitFunction" else []
    return tuple(
        tuple(sorted((name, repr(each)) for name, each in one.items() if _is_atom(each) and not is_of_python(name)))
        for one in held
    )


def _is_atom(value: Any) -> bool:
    return type(value) in _ATOMS and not (type(value) is int and abs(value) >= _MAX_NUMBER)


_COMPUTED: dict[str, Callable[[Any], Any]] = {
    CACHE: _cache_of,
    LOADED: lambda module: ABSENT if module is ABSENT else True,
    MODULES: _modules_of,
    NAMES: _names_of,
    OWN: _own_of,
    SUBCLASSES: _subclasses_of,
}


def compute(part: str, value_of: Callable[[Any], Any]) -> None:
    """Make a part of names mean a value that is computed from the value of the parts before."""
    _COMPUTED[part] = value_of
