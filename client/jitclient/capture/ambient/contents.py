"""Contents of an installed package when they were first seen: if possible, before the program changed them.

Of jax, the contents are those of its modules and classes, the tables of rules, the attributes of primitives and of
transformed functions, and the code and the defaults of functions; of other packages, those of modules and classes.

Each capture asks whether they changed, so the answer must take microseconds: it reads the versions that CPython counts
for dictionaries, and one count for all functions. Contents without a version are compared object by object.
"""

import functools
import itertools
import operator
import sys
from collections.abc import Callable, Mapping
from types import FunctionType, ModuleType
from typing import Any

from jitclient.core import compat, replaced_code

TRANSFORMED = frozenset({"PjitFunction", "custom_jvp", "custom_vjp", "_lru_cache_wrapper"})
"""Types made from a function, which they keep where `functools.wraps` keeps it."""

code_of: Callable[[FunctionType], tuple[Any, ...]] = operator.attrgetter("__code__", "__defaults__", "__kwdefaults__")
"""Returns the code and the defaults of a function."""


class Namespace:
    """Names of a module, class, object or function's keywords, or the entries of a table, and their values."""

    __slots__ = ("_home", "_keys", "_values", "held", "kind", "names", "places")

    def __init__(self, kind: str, module: str, path: str, names: Mapping[Any, Any], is_known: bool) -> None:
        self.kind = kind
        self.names = names
        self.places: tuple[tuple[str, str], ...] = ()  # that the program had changed then
        self._home = module, path
        self._keys, self._values = tuple(names), tuple(names.values())
        self.held = (*self._keys, *self._values) if is_known else None  # names and values at the last look

    def before(self) -> dict[Any, Any]:
        """Return the names and values as first seen."""
        return dict(zip(self._keys, self._values, strict=True))

    def place(self, name: Any) -> tuple[str, str]:
        """Return the module and the path of a name."""
        module, path = self._home
        return module, f"{path}[{name}]" if self.kind == "table" else f"{path}.{name}".lstrip(".")

    def holds_the_same(self) -> bool:
        """Return whether the names are those of the last look, and have the values of then."""
        held, names = self.held, self.names
        if held is None or len(held) != 2 * len(names):
            return False
        return all(map(operator.is_, held, itertools.chain(names, names.values())))


class Contents:
    """Contents of the loaded modules of one package."""

    def __init__(self, package: str) -> None:
        self.package = package
        self._clear()

    def _clear(self) -> None:
        self.namespaces: list[Namespace] = []
        self.functions: list[FunctionType] = []
        self.places: list[tuple[str, str]] = []  # of the functions
        self.code: list[tuple[Any, ...]] = []  # of the functions, as first seen
        self.changed: tuple[tuple[str, str], ...] = ()  # places that the program had changed at the last look
        self._stamp = -1  # of all modules, at the last search
        self._are_known = False
        self._seen: dict[int, Any] = {}  # by id, which the values keep unique
        self._versions: list[Any] = []
        self._unversioned: list[Namespace] = []
        self._held: list[int] | None = None

    def hold_the_same(self) -> bool:
        """Return whether nothing changed since the last call of `looked`."""
        try:
            return self._held == self.stamps() and all(space.holds_the_same() for space in self._unversioned)
        except RuntimeError:  # another thread changes a namespace
            return False

    def looked(self, stamps: list[int]) -> None:
        """Note what `stamps` returned before all contents were looked at."""
        self._held = stamps

    def stamps(self) -> list[int]:
        """Return the counts of changes until now."""
        return [*map(_value, self._versions), *replaced_code.count]

    def is_key_of_jax(self, key: Any) -> bool:
        """Return whether a key of a table is jax's or Python's: a primitive, an installed type, or a name."""
        if isinstance(key, type):
            return key.__module__.partition(".")[0] in ("builtins", "jax", "jaxlib", "ml_dtypes", "numpy")
        return not is_primitive(key) or id(key) in self._seen

    def add_loaded(self, are_known: bool = False) -> None:
        """Add the modules that were loaded since the last call; they need no look if they are known to be unchanged."""
        if self._stamp == compat.modules_stamp():
            return
        try:
            self._add_modules(are_known)
        except BaseException:
            # Half of the contents must not count as all.
            self._clear()
            raise

    def _add_modules(self, are_known: bool) -> None:
        replaced_code.start_counting()
        self._are_known = are_known
        self._stamp, prefix = compat.modules_stamp(), f"{self.package}."
        for name, module in dict(sys.modules).items():
            if f"{name}.".startswith(prefix) and isinstance(module, ModuleType) and self._is_new(module):
                self._held = None
                self._add("module", name, "", vars(module))
                for label, value in vars(module).copy().items():
                    self._add_value(name, label, value)

    def _add(self, kind: str, module: str, path: str, names: Mapping[Any, Any]) -> None:
        space = Namespace(kind, module, path, names, self._are_known)
        self.namespaces.append(space)
        version = compat.version_of(names, kind == "object")
        if version is None:
            self._unversioned.append(space)
        else:
            self._versions.append(version)

    def _add_value(self, module: str, name: str, value: Any) -> None:
        of: Any = type(value)
        kind = _kind_of(of)
        if not kind or id(value) in self._seen:
            return
        if kind == "class":
            home, name = value.__module__, value.__qualname__
            # Some of jax's classes are made by jaxlib.
            if home == module or (self.package == "jax" and str(home).partition(".")[0] in ("jax", "jaxlib")):
                self._is_new(value)
                self._add("class", home, name, vars(value))
                for label, held in vars(value).copy().items():
                    if isinstance(held, FunctionType | staticmethod | classmethod):
                        self._add_code(home, f"{name}.{label}", held)
        elif self.package == "jax" and kind == "table" and not name.startswith("__"):
            self._is_new(value)
            for path, table in [(name, value), *((f"{name}[{key}]", held) for key, held in value.copy().items())]:
                if isinstance(table, dict) and all(isinstance(key, str | type) or is_primitive(key) for key in table):
                    self._add("table", module, path, table)
        elif kind != "table":
            self._add_code(module, name, value)

    def _add_code(self, module: str, path: str, value: Any) -> None:
        """Add a function or another object of jax with rules, and the functions that it wraps."""
        of: Any = type(value)
        while self.package == "jax" and (kind := _kind_of(of)) in ("function", "object") and self._is_new(value):
            if kind == "object":
                self._add("object", module, path, vars(value))
            elif type(value) is FunctionType:
                self.functions.append(value)
                self.places.append((module, path))
                self.code.append(code_of(value))
                if value.__kwdefaults__:
                    self._add("defaults", module, path, value.__kwdefaults__)
            value = getattr(value, "__wrapped__", getattr(value, "__func__", None))
            of = type(value)

    def _is_new(self, value: Any) -> bool:
        is_new = id(value) not in self._seen
        self._seen[id(value)] = value
        return is_new


_of_packages: dict[str, Contents] = {}
_value = operator.attrgetter("value")


def contents_of(package: str) -> Contents:
    """Return the contents of a package."""
    if package not in _of_packages:
        _of_packages[package] = Contents(package)
    return _of_packages[package]


@functools.cache
def _kind_of(kind: Any) -> str:
    """Return the kind of contents that objects of a type are; empty for those that have none."""
    if issubclass(kind, type):
        return "class"
    if issubclass(kind, dict):
        return "table"
    if kind in (FunctionType, staticmethod, classmethod):
        return "function"
    has_rules = kind.__name__ in TRANSFORMED or _is_of_primitives(kind)
    return "object" if has_rules and hasattr(kind, "__dict__") and "_lru" not in kind.__name__ else ""


def is_primitive(obj: Any) -> bool:
    """Return whether an object is a JAX primitive, made by JAX or by any other code."""
    of: Any = type(obj)
    return _is_of_primitives(of)


@functools.cache
def _is_of_primitives(kind: Any) -> bool:
    return any(base.__name__ == "Primitive" and base.__module__.startswith("jax.") for base in kind.__mro__)
