"""Checks, made before each call, that jax's settings and trace state in this process have not changed.

The checks run at every call, so they must be fast.
"""

import sys
from collections.abc import Callable
from typing import Any

from jitclient.jaxside import context, internals, trace_state
from jitclient.jaxside.jax_settings import NOT_COMPARED


def check() -> Callable[[], bool]:
    """Return a function that checks, in the thread that calls it, whether settings and trace state equal those of now.

    The returned function calls no Python functions if this version of JAX allows that.

    Example:
        >>> unchanged = check()
        >>> with jax.enable_x64(True):
        ...     unchanged()
        False
    """
    if "jax" not in sys.modules:
        return _of_environment(dict(context.environment()))
    quick = internals.trace_context_and_level()
    outside = context.outside_of_trace_context()
    return _of_settings(context.current()) if quick is None or outside is None else _of_jax(*quick, outside)


def check_not_compared() -> Callable[[], bool]:
    """Return a function that checks the settings that JAX's own code does not compare at a call, or all settings."""
    if "jax" not in sys.modules or context.outside_of_trace_context() is None:
        return check()
    return _of_three(*[getattr(sys.modules["jax"], name.removeprefix("jax_")) for name in NOT_COMPARED])


def settings_here() -> context.Context | None:
    """Return the current settings; None inside a trace or under `jax.disable_jit`.

    The call is fast if nothing changed since the previous call.

    Example:
        >>> with jax.enable_x64(True):
        ...     settings_here()
        (('jax_enable_x64', True),)
    """
    global _last
    is_unchanged, settings = _last
    if is_unchanged():
        return settings
    is_unchanged = check()
    if trace_state.is_active() or context.jit_is_disabled():
        return None
    settings = context.current()
    # If the check fails, another thread has changed the settings since: do not keep them.
    if is_unchanged():
        _last = is_unchanged, settings
    return settings


def _never() -> bool:
    return False


_last: tuple[Callable[[], bool], context.Context] = _never, ()


def _of_environment(seen: dict[Any, Any]) -> Callable[[], bool]:
    """Return a check for a process without jax: its settings are the environment variables that jax would read."""
    loaded, environment = sys.modules, context.environment

    def unchanged() -> bool:
        return "jax" not in loaded and bool(environment() == seen)

    return unchanged


def _of_jax(trace_context: Callable[[], Any], level: Any, base: Any, outside: tuple[Any, ...]) -> Callable[[], bool]:
    now = trace_context()
    a, b, c, d, e, f, g = outside
    of_a, of_b, of_c, of_d, of_e, of_f, of_g = [setting.value for setting in outside]

    def unchanged() -> bool:
        return (
            level.value is base
            and a.value == of_a
            and b.value == of_b
            and c.value == of_c
            and d.value == of_d
            and e.value == of_e
            and f.value == of_f
            and g.value == of_g
            and trace_context() == now
        )

    return unchanged


def _of_three(a: Any, b: Any, c: Any) -> Callable[[], bool]:
    of_a, of_b, of_c = [setting.value for setting in (a, b, c)]

    def unchanged() -> bool:
        return bool(a.value == of_a and b.value == of_b and c.value == of_c)

    return unchanged


def _of_settings(seen: context.Context) -> Callable[[], bool]:
    def unchanged() -> bool:
        return not (trace_state.is_active() or context.jit_is_disabled()) and context.current() == seen

    return unchanged
