"""Function `install`: routes a program's `jax.jit` calls to jitclient, without changing the program."""

import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import Any

from jitclient.calls import decorator, early_start
from jitclient.capture.user_code.installed import is_user_module
from jitclient.core import first_use
from jitclient.core.tracebacks import api_boundary
from jitclient.jaxside import compilation_cache, interop
from jitclient.profiles import observer
from jitclient.session import process

_COUNTERPARTS: tuple[tuple[str, str, Callable[[], Any]], ...] = (
    ("jax", "jit", lambda: decorator.jit),
    ("equinox", "filter_jit", lambda: importlib.import_module("jitclient.eqx").filter_jit),
    ("flax.nnx", "jit", lambda: importlib.import_module("jitclient.nnx").jit),
)
"""Module, name of its function, and a getter of jitclient's counterpart, used once the program imported the module."""


class Installed:
    """Context manager returned by `install`; its exit undoes the installation.

    Attributes:
        packages: top-level names of installed packages whose jits jitclient handles, too.
    """

    def __init__(self, packages: frozenset[str]) -> None:
        self.packages = packages

    def covers(self, module: Any) -> bool:
        """Return whether jitclient handles the jits of a module of that name."""
        return is_user_module(module) or module.partition(".")[0] in self.packages

    def __enter__(self) -> "Installed":
        return self

    def __exit__(self, *_: object) -> None:
        if self in _in_force:
            _in_force.remove(self)
            if not _in_force:
                _restore()


_in_force: list[Installed] = []
_replaced: list[tuple[dict[str, Any], str, Any, Any]] = []
"""Names that `install` rebound: namespace, name, original value, replacement."""


@api_boundary
def install(packages: Iterable[str] = ()) -> Installed:
    """Make `jax.jit` do what `jitclient.jit` does, for all later calls from user code.

    This includes `from jax import jit` and `functools.partial(jax.jit, ...)`, even if a module of the program bound
    them earlier. Likewise, `equinox.filter_jit` and `flax.nnx.jit` do what `jitclient.eqx.filter_jit` and
    `jitclient.nnx.jit` do. Functions that are already jitted do not change, nor do the jits of installed packages.

    Args:
        packages: top-level names of installed packages whose jits jitclient handles, too.

    Returns:
        A context manager whose exit undoes the installation; `uninstall` does the same.

    Example:
        >>> jitclient.install()
        >>> step = jax.jit(lambda x: x + 1)  # runs on the daemon
    """
    if isinstance(packages, str):
        raise TypeError(f"packages must be an iterable of names, not one name. Pass [{packages!r}]")
    if not process.inside_daemon:
        first_use.note()
        compilation_cache.keep_compilations()
        early_start.start_with_jax()
        observer.observe()
    installed = Installed(frozenset(packages))
    _in_force.append(installed)
    if len(_in_force) == 1:
        for module, name, ours in _COUNTERPARTS:
            interop.when_loaded(functools.partial(_replace, module, name, ours), module, name)
    return installed


def in_force() -> tuple[Installed, ...]:
    """Return the installations that are not undone."""
    return tuple(_in_force)


def uninstall() -> None:
    """Undo each `install` and restore JAX's `jax.jit`. Functions jitted in between still run on the daemon."""
    _in_force.clear()
    _restore()


def _replace(module: str, name: str, ours: Callable[[], Any]) -> None:
    if not _in_force:
        return
    was = getattr(sys.modules[module], name)
    routed = _routed(was, ours)
    for namespace, key, value in _bound(was, {module, was.__module__}):
        now = routed if value is was else functools.partial(routed, *value.args, **value.keywords)
        namespace[key] = now
        _replaced.append((namespace, key, value, now))


def _routed(own: Callable[..., Any], ours: Callable[[], Any]) -> Callable[..., Any]:
    """Return a wrapper of `own` that calls jitclient's counterpart, or `own` itself.

    The counterpart is used if covered code makes the call and the counterpart accepts the arguments.
    """

    # `wraps` makes captures refer to the wrapper by the name of the original.
    @functools.wraps(own)
    @api_boundary
    def routed(*fun: Any, **keywords: Any) -> Any:
        caller = sys._getframe(2).f_globals.get("__name__")
        if any(one.covers(caller) for one in _in_force) and _accepts(ours(), fun, keywords):
            return ours()(*fun, **keywords)
        return own(*fun, **keywords)

    return routed


def _accepts(function: Callable[..., Any], positional: tuple[Any, ...], keywords: dict[str, Any]) -> bool:
    try:
        inspect.signature(function).bind(*positional, **keywords)
    except TypeError:
        return False
    return True


def _bound(was: Any, homes: set[str]) -> Iterator[tuple[dict[str, Any], str, Any]]:
    """Yield the bindings of a function, or of a partial of it, in its home modules and in the program's modules."""
    for name in dict.fromkeys((*homes, *modules_of_the_program())):
        module = sys.modules.get(name)
        if isinstance(module, ModuleType):
            for key, value in dict(vars(module)).items():
                if value is was or (type(value) is functools.partial and value.func is was):
                    yield vars(module), key, value


def modules_of_the_program() -> tuple[str, ...]:
    """Return the names of the loaded modules that are not of installed packages.

    Cached until modules are imported, because examining each module is slow in a forked process.
    """
    return _modules_of_the_program(len(sys.modules), next(reversed(sys.modules)))


@functools.lru_cache(maxsize=1)
def _modules_of_the_program(number: int, last: str) -> tuple[str, ...]:
    return tuple(name for name in list(sys.modules) if is_user_module(name.partition(".")[0]))


def _restore() -> None:
    while _replaced:
        namespace, name, was, now = _replaced.pop()
        if namespace.get(name) is now:
            namespace[name] = was
