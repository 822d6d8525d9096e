"""`install`: what a program jits with `jax.jit` becomes jitclient's, without a change of the program."""

import functools
import sys
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any

from jitclient import decorator
from jitclient.codec.user_code.installed import is_user_module
from jitclient.local_jax import interop, own_jit


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
    has at its top already. What is jitted already stays as it is, and so do the jits of installed packages.

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
        interop.when_loaded(_replace)
    return installed


def uninstall() -> None:
    """Undoes each `install`: `jax.jit` is JAX's again. What was jitted meanwhile stays jitclient's."""
    _in_force.clear()
    _restore()


def jit(*fun: Any, **keywords: Any) -> Any:
    """What `jax.jit` is while `install` is in force: jitclient's where user code calls it, or else JAX's own."""
    module = sys._getframe(1).f_globals.get("__name__")
    known = (decorator.jit.__kwdefaults__ or {}).keys()
    is_ours = keywords.keys() <= known and any(one.covers(module) for one in _in_force)
    return (decorator.jit if is_ours else own_jit.own_jit)(*fun, **keywords)


def _replace() -> None:
    jax = sys.modules["jax"]
    if not _in_force or jax.jit is jit:
        return
    was = jax.jit
    functools.update_wrapper(jit, was)  # so that captures name it as they name JAX's
    for namespace, name, value in [(vars(jax), "jit", was), *_bound_in_user_code(was)]:
        now = jit if value is was else functools.partial(jit, *value.args, **value.keywords)
        namespace[name] = now
        _replaced.append((namespace, name, value, now))


def _bound_in_user_code(was: Any) -> Iterator[tuple[dict[str, Any], str, Any]]:
    """Where modules of the program have `jax.jit`, or a partial of it, under a name of theirs."""
    for name, module in list(sys.modules.items()):
        if isinstance(module, ModuleType) and is_user_module(name.partition(".")[0]):
            for key, value in list(vars(module).items()):
                if value is was or (type(value) is functools.partial and value.func is was):
                    yield vars(module), key, value


def _restore() -> None:
    while _replaced:
        namespace, name, was, now = _replaced.pop()
        if namespace.get(name) is now:
            namespace[name] = was
