"""`install`: what a program jits with `jax.jit` becomes jitclient's, without a change of the program."""

import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import Any

from jitclient.calls import decorator
from jitclient.capture.user_code.installed import is_user_module
from jitclient.jaxside import interop

_COUNTERPARTS: tuple[tuple[str, str, Callable[[], Any]], ...] = (
    ("jax", "jit", lambda: decorator.jit),
    ("equinox", "filter_jit", lambda: importlib.import_module("jitclient.eqx").filter_jit),
    ("flax.nnx", "jit", lambda: importlib.import_module("jitclient.nnx").jit),
)
"""Module, name of its function, and what gives ours, once the program has imported the module."""


class Installed:
    """What `install` returns: a context manager, whose end undoes it."""

    def __init__(self, packages: frozenset[str]) -> None:
        self._packages = packages

    def covers(self, module: Any) -> bool:
        """Whether what a module of that name jits is jitclient's."""
        return is_user_module(module) or module.partition(".")[0] in self._packages

    def __enter__(self) -> "Installed":
        return self

    def __exit__(self, *_: object) -> None:
        if self in _in_force:
            _in_force.remove(self)
            if not _in_force:
                _restore()


_in_force: list[Installed] = []
_replaced: list[tuple[dict[str, Any], str, Any, Any]] = []
"""The names that `install` bound anew: namespace, name, before, since."""


def install(packages: Iterable[str] = ()) -> Installed:
    """Has `jax.jit`, where user code calls it from now on, do what `jitclient.jit` does.

    That includes `from jax import jit` and `functools.partial(jax.jit, ...)`, also those that a module of the program
    has at its top already. `equinox.filter_jit` and `flax.nnx.jit` likewise do what `jitclient.eqx.filter_jit`
    and `jitclient.nnx.jit` do. What is jitted already stays as it is, and so do the jits of installed packages.

    Args:
        packages: top-level names of installed packages whose jits are to be jitclient's, too.

    Returns:
        A context manager whose end undoes it; without one, `uninstall` does.

    Example:
        >>> jitclient.install()
        >>> step = jax.jit(lambda x: x + 1)  # runs on the daemon
    """
    if isinstance(packages, str):
        raise TypeError(f"packages is an iterable of names, not one name: [{packages!r}]")
    installed = Installed(frozenset(packages))
    _in_force.append(installed)
    if len(_in_force) == 1:
        for module, name, ours in _COUNTERPARTS:
            interop.when_loaded(functools.partial(_replace, module, name, ours), module, name)
    return installed


def uninstall() -> None:
    """Undoes each `install`: `jax.jit` is JAX's again. What was jitted meanwhile stays jitclient's."""
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
    """A function that does what ours does where user code calls it with what ours takes, or else what its own does."""

    @functools.wraps(own)  # so that captures name it as they name its own
    def routed(*fun: Any, **keywords: Any) -> Any:
        caller = sys._getframe(1).f_globals.get("__name__")
        if any(one.covers(caller) for one in _in_force) and _takes(ours(), fun, keywords):
            return ours()(*fun, **keywords)
        return own(*fun, **keywords)

    return routed


def _takes(function: Callable[..., Any], positional: tuple[Any, ...], keywords: dict[str, Any]) -> bool:
    try:
        inspect.signature(function).bind(*positional, **keywords)
    except TypeError:
        return False
    return True


def _bound(was: Any, homes: set[str]) -> Iterator[tuple[dict[str, Any], str, Any]]:
    """Where its homes and the modules of the program have a function, or a partial of it, under a name of theirs."""
    for name in dict.fromkeys((*homes, *modules_of_the_program())):
        module = sys.modules.get(name)
        if isinstance(module, ModuleType):
            for key, value in list(vars(module).items()):
                if value is was or (type(value) is functools.partial and value.func is was):
                    yield vars(module), key, value


def modules_of_the_program() -> tuple[str, ...]:
    """The modules that are not installed, found again whenever modules were imported: to look at each takes long in a
    process that was forked.
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
