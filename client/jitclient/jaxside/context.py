"""The client's part of a program's context: the JAX settings that affect traces."""

import functools
import operator
import os
import sys
from collections.abc import Callable
from typing import Any

from jitclient.core.settings import BOOLEANS
from jitclient.jaxside import internals, interop, shardings
from jitclient.jaxside.jax_settings import (
    CARRIED,
    CLIENT_ONLY,
    OUTSIDE_OF_TRACE_CONTEXT,
    REFUSED,
    REFUSED_WHEN_COMPILING,
)
from jitclient.wire.shardings import Mesh, Sharding

DEFAULTS = CARRIED

_ALL = {**CARRIED, **REFUSED}

Context = tuple[tuple[str, Any], ...]


def current() -> Context:
    """Return the settings that differ from JAX's defaults, whether set by environment, `jax.config` or `with` block.

    Example:
        >>> with jax.enable_x64(True):
        ...     current()
        (('jax_enable_x64', True),)
    """
    jax = sys.modules.get("jax")
    if jax is None:
        return _from_environment(_ALL)
    outside = outside_of_trace_context()
    if outside is None:
        return _read(jax)
    global _last
    state, last = _state(outside), _last
    if state != last[0]:
        last = state, _read(jax)
        # Another thread may change a setting of the whole process meanwhile, and change it back.
        if _state(outside) == state and _read(jax) == last[1]:
            _last = last
    return last[1]


def _state(outside: tuple[Any, ...]) -> tuple[Any, ...]:
    return internals.trace_context()(), *[setting.value for setting in outside]


def outside_of_trace_context() -> tuple[Any, ...] | None:
    """Return the objects that hold, in `value`, the settings outside of JAX's trace context, and the mesh of devices.

    Return None if this version of JAX lacks any of these objects, or its trace context.
    """
    jax = sys.modules["jax"]
    states = [getattr(jax, name.removeprefix("jax_"), None) for name in OUTSIDE_OF_TRACE_CONTEXT]
    found = (*states, internals.mesh_of_devices())
    is_known = internals.trace_context()() is not None and all(hasattr(state, "value") for state in found)
    return found if is_known else None


_last: tuple[Any, Context] = (None, ())


def _read(jax: Any) -> Context:
    names, read, defaults = _readers()
    values = read(jax.config)
    mesh, block = jax.sharding.get_abstract_mesh(), internals.mesh_of_block()
    is_unnamed = _differs_from_start()
    if values == defaults and mesh.empty and block is None and not is_unnamed:
        return ()
    found = zip(names, values, defaults, strict=True)
    settings = [(name, _plain(value)) for name, value, default in found if value != default]
    settings = [(name, value) for name, value in settings if value != _FIRST_DEVICE]
    settings += [] if mesh.empty else [("mesh", _mesh_in_force())]
    settings += [] if block is None else [("mesh_context_manager", _as_plain(shardings.of_mesh(block)))]
    settings += [(_UNNAMED, True)] if is_unnamed else []
    return tuple(settings)


_UNNAMED = "context manager of JAX (set_xla_metadata, make_user_context)"
_at_start: tuple[Any, ...] = ()


def _differs_from_start() -> bool:
    """Return whether unnamed values of the trace context differ from those at the start, or when they appeared."""
    global _at_start
    unnamed = internals.unnamed_trace_context()()
    _at_start += unnamed[len(_at_start) :]
    return unnamed != _at_start


def _note_start() -> None:
    _differs_from_start()


interop.when_loaded(_note_start)


def uncarried(context: Context) -> str:
    """Return a setting that applies to a whole process and differs from its default, with its value; else ""."""
    found = (*context, *_differing(REFUSED_WHEN_COMPILING))
    refused = {*REFUSED, *REFUSED_WHEN_COMPILING, _UNNAMED}
    return next((f"{name} = {value!r}" for name, value in found if name in refused), "")


def check_tracing(name: str) -> None:
    """Raise as `jax.no_tracing` does: looking up or compiling a new program counts as tracing.

    Raises:
        RuntimeError: the program runs under `jax.no_tracing`.
    """
    if _is_on("jax_no_tracing"):
        raise RuntimeError(f"re-tracing function {name} for `jit`, but 'no_tracing' is set")


def is_one_of_several() -> bool:
    """Return whether the program consists of several processes, which compute together on all their devices."""
    jax = sys.modules.get("jax")
    return jax is not None and jax.distributed.is_initialized() and jax.process_count() > 1


def check_execution(name: str) -> None:
    """Raise as `jax.no_execution` does. Calls under this setting never use a call plan, so each one is checked here.

    Raises:
        RuntimeError: the program runs under `jax.no_execution`.
    """
    if _is_on("jax_no_execution"):
        raise RuntimeError(f"JAX tried to execute function {name}, but the no_execution config option is set")


def on_mesh(context: Context) -> bool:
    """Return whether the settings include a current mesh or a default device, which traces use."""
    return any(name in ("mesh", "mesh_context_manager", "jax_default_device") for name, _ in context)


def default_device(context: Context) -> Sharding | None:
    """Return the sharding of the `jax.default_device` setting; None for the first device."""
    device = dict(context).get("jax_default_device")
    return None if device is None or isinstance(device, str) else Sharding(Mesh(*device))


def jit_is_disabled() -> bool:
    """Return whether the program runs under `jax.disable_jit`."""
    return _is_on("jax_disable_jit")


def checks_values() -> bool:
    """Return whether the program runs under `jax.debug_nans` or `jax.debug_infs`."""
    return _is_on("jax_debug_nans") or _is_on("jax_debug_infs")


def logs_compiles() -> bool:
    """Return whether the program runs under `jax.log_compiles`."""
    return _is_on("jax_log_compiles")


def keeps_64_bits() -> bool:
    """Return whether new arrays may have 64-bit dtypes with the current settings."""
    return _is_on("jax_enable_x64")


def x64(context: Context) -> bool:
    """Return whether 64-bit dtypes are kept under the settings in a context."""
    return bool(dict(context).get("jax_enable_x64", False))


def _is_on(name: str) -> bool:
    jax = sys.modules.get("jax")
    if jax is None:
        return BOOLEANS.get(_variables().get(name.upper(), "").lower(), False)
    return bool(getattr(jax.config, name))


@functools.cache
def _readers() -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]], tuple[Any, ...]]:
    """Return the settings that this version of JAX has, a function that reads them all, and their defaults."""
    names = tuple(name for name in _ALL if hasattr(sys.modules["jax"].config, name))
    return names, operator.attrgetter(*names), tuple(_ALL[name] for name in names)


def _differing(table: dict[str, Any]) -> Context:
    """Return the settings whose values differ from those in a table."""
    jax = sys.modules.get("jax")
    if jax is None:
        return _from_environment(table)
    # Settings of the whole process are in `config.values` and are not attributes of `config`.
    flags = jax.config.values
    found = {name: getattr(jax.config, name, flags.get(name, default)) for name, default in table.items()}
    values = [(name, _plain(found[name]), default) for name, default in table.items()]
    return tuple((name, value) for name, value, default in values if value != default)


def _from_environment(table: dict[str, Any]) -> Context:
    found = _variables()
    if not found:
        return ()
    texts = [(name, found[name.upper()], default) for name, default in table.items() if name.upper() in found]
    made = [(name, _parsed(text, default), default) for name, text, default in texts]
    return tuple((name, value) for name, value, default in made if value != default)


def environment() -> Any:
    """Return the dict inside `os.environ`, as access through `os.environ` itself is slow."""
    return getattr(os.environ, "_data", os.environ)


def _variables() -> dict[str, str]:
    """Return the environment variables that jax would read as settings. Fast if the environment has not changed."""
    global _environment
    now = environment()
    seen, found = _environment
    if now != seen:
        # Other threads may change the environment, so read only this copy.
        seen = dict(now)
        texts = {os.fsdecode(name): os.fsdecode(text) for name, text in seen.items()}
        found = {name: text for name, text in texts.items() if name in _NAMES}
        _environment = (seen, found)
    return found


_NAMES = frozenset(name.upper() for name in (*_ALL, *REFUSED_WHEN_COMPILING, *CLIENT_ONLY))
_environment: tuple[dict[Any, Any], dict[str, str]] = ({}, {})


def _parsed(text: str, default: Any) -> Any:
    if isinstance(default, bool):
        return BOOLEANS.get(text.lower(), default)
    if isinstance(default, int):
        return int(text) if text.lstrip("-").isdecimal() else text
    return text


def _plain(value: Any) -> Any:
    jax = sys.modules["jax"]
    if isinstance(value, (jax.Device, jax.sharding.Sharding)):
        [device] = value.device_set if isinstance(value, jax.sharding.Sharding) else [value]
        return _as_plain(shardings.on_device(device).mesh)
    # Some of JAX's settings are enums.
    return getattr(value, "value", value)


# The default device of JAX, so a setting with this value has no effect.
_FIRST_DEVICE = ((), (), (0,), "")


def _mesh_in_force() -> Any:
    jax = sys.modules["jax"]
    mesh = jax.sharding.get_mesh()
    return _as_plain(shardings.of_mesh(jax.sharding.get_abstract_mesh() if mesh.empty else mesh))


@functools.lru_cache(maxsize=64)
def _as_plain(mesh: Mesh) -> Any:
    """Return a mesh as nested tuples, the form in which settings are sent."""
    return (mesh.axes, mesh.types, mesh.devices, mesh.platform)
