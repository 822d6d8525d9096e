"""Mutations of captured objects during a trace: `jax.jit` would change the caller's, the daemon changes copies."""

import functools
import warnings
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from types import FunctionType
from typing import Any, NamedTuple

from jitclient.codec.capture import Loaded
from jitclient.codec.reducers.attributes import dict_of
from jitclient.codec.steps.captured import __name__ as captured
from jitclient.codec.steps.sharing import is_captured_class

_MAPPINGS = frozenset({dict, OrderedDict, Counter, defaultdict})
_CONTAINERS = _MAPPINGS | {list, deque, set, tuple}
_PLAIN = frozenset({bool, int, float, complex, str, bytes, tuple})
_MISSING = object()


class _Names(NamedTuple):
    """The names in a namespace of user code: of a module, an object, a class, a function or a closure."""

    label: str
    read: Callable[[], dict[str, Any]]
    is_cache: Callable[[str], bool] = lambda name: False


class Contents:
    """The contents of captured objects: names that user code may rebind, and containers."""

    def __init__(self, loaded: Loaded) -> None:
        self._names: list[tuple[_Names, dict[str, Any]]] = []
        self._containers: list[tuple[str, Any, list[Any]]] = []
        self._seen: set[int] = set()
        for op, made in loaded.made:
            for names in _names_of(op, made):
                was = dict(names.read())
                self._names.append((names, was))
                for name, value in was.items():
                    if not _is_cache(names, name, value):
                        self._add_container(names.label.format(name), value)

    def warn_of_changes(self, name: str) -> None:
        """Warn of the first change since this was made."""
        changed = next(self._changed(), None)
        if changed is not None:
            warnings.warn(
                f"{name} changes {changed} while it is traced. It is traced on the daemon, so in this process nothing "
                "has changed (with jax.jit it would change during the trace, not in every call): return the "
                "value instead",
                RuntimeWarning,
                stacklevel=2,
            )

    def _add_container(self, label: str, value: Any) -> None:
        if type(value) not in _CONTAINERS or id(value) in self._seen:
            return
        self._seen.add(id(value))
        items = _items(value)
        self._containers.append((label, value, items))
        for item in items:
            self._add_container(label, item)

    def _changed(self) -> Iterator[str]:
        for names, was in self._names:
            now = names.read()
            for name in {**was, **now}:
                before, after = was.get(name, _MISSING), now.get(name, _MISSING)
                if not _are_same([before], [after]) and not _is_cache(names, name, before):
                    yield names.label.format(name)
        for label, container, was_held in self._containers:
            if not _are_same(was_held, _items(container)):
                yield label


def _names_of(op: str, made: Any) -> Iterator[_Names]:
    if op == "namespace":
        known = [name for name in vars(made) if not _is_dunder(name)]  # a module's body may run during the trace
        yield _Names("the global {!r}", lambda: {name: vars(made)[name] for name in known if name in vars(made)})
    elif op in ("new", "bare", "call") and is_captured_class(type(made)):
        label, is_cache = f"{{!r}} of a {type(made).__qualname__}", functools.partial(_is_bookkeeping, type(made))
        yield _Names(label, lambda: _own(dict_of(made)), is_cache)
    elif op == "class" and is_captured_class(made):
        yield _Names(f"{{!r}} of the class {made.__qualname__}", lambda: _own(vars(made)))
    elif op == "function" and type(made) is FunctionType and made.__globals__.get("__name__") == captured:
        yield _Names(f"{{!r}} of the function {made.__qualname__}", lambda: _own(vars(made)))
        yield _Names(f"the variable {{!r}} around {made.__qualname__}", functools.partial(_closure, made))
        yield _Names(f"the default {{!r}} of {made.__qualname__}", functools.partial(_defaults, made))


def _own(names: Any) -> dict[str, Any]:
    return {name: value for name, value in names.items() if not _is_dunder(name)}


def _is_dunder(name: Any) -> bool:
    return not isinstance(name, str) or name.startswith("__")


def _closure(func: FunctionType) -> dict[str, Any]:
    held = {}
    for name, cell in zip(func.__code__.co_freevars, func.__closure__ or (), strict=True):
        try:
            held[name] = cell.cell_contents
        except ValueError:
            continue
    return held


def _defaults(func: FunctionType) -> dict[str, Any]:
    code, values = func.__code__, func.__defaults__ or ()
    return dict(zip(code.co_varnames[code.co_argcount - len(values) :], values, strict=False))


def _is_bookkeeping(cls: type, name: str) -> bool:
    """Whether an attribute is internal: a cached property, or a private one of a library's base class."""
    if any(isinstance(vars(base).get(name), functools.cached_property) for base in cls.__mro__):
        return True
    is_of_library = any(not is_captured_class(base) and base.__module__ != "builtins" for base in cls.__mro__)
    return is_of_library and name.startswith("_")


def _is_cache(names: _Names, name: str, before: Any) -> bool:
    """Whether a name holds a cache, whose change has no consequences, as the value would be computed again."""
    is_filled_late = before is None or before is _MISSING
    says_so = any(word in name.lower() for word in ("cache", "memo"))
    return says_so or (is_filled_late and name.startswith("_")) or names.is_cache(name)


def _items(container: Any) -> list[Any]:
    if type(container) in _MAPPINGS:
        return [part for pair in container.items() for part in pair]
    return sorted(container, key=id) if type(container) is set else list(container)


def _are_same(was: Sequence[Any], now: Sequence[Any]) -> bool:
    """Whether values are the same: by identity, or for plain types by equality. Never calls a user's `__eq__`."""
    return len(was) == len(now) and all(a is b or _equal(a, b) for a, b in zip(was, now, strict=True))


def _equal(a: Any, b: Any) -> bool:
    return type(a) is type(b) and type(a) in _PLAIN and (_are_same(a, b) if type(a) is tuple else a == b)
