"""The part of a program's context that the client decides: the JAX settings that change what is traced."""

import functools
import operator
import os
import sys
from collections.abc import Callable
from typing import Any

from jitclient import shardings
from jitclient.errors import CaptureError
from jitclient.settings import BOOLEANS
from jitclient.wire.shardings import Mesh

DEFAULTS: dict[str, Any] = {
    "jax_enable_x64": False,
    "jax_default_matmul_precision": None,
    "jax_numpy_dtype_promotion": "standard",
    "jax_numpy_rank_promotion": "allow",
    "jax_default_device": None,
    "jax_default_prng_impl": "threefry2x32",
    "jax_threefry_partitionable": True,
    "jax_allow_f16_reductions": True,
    "jax_debug_infs": False,
    "jax_debug_key_reuse": False,
    "jax_debug_nans": False,
    "jax_enable_custom_prng": False,
    "jax_legacy_prng_key": "allow",
    "jax_softmax_custom_jvp": False,
}
"""The settings that travel with a call, and what JAX has where the user set nothing."""

_UNCARRIED: dict[str, Any] = {"jax_random_seed_offset": 0, "jax_high_dynamic_range_gumbel": False}
"""Settings that change what is traced, and that JAX can give to a whole process only."""

_ALL = {**DEFAULTS, **_UNCARRIED}

Context = tuple[tuple[str, Any], ...]


def current() -> Context:
    """The settings that differ from JAX's defaults, however they were set: environment, `jax.config`, a `with` block.

    Example:
        >>> with jax.enable_x64(True):
        ...     current()
        (('jax_enable_x64', True),)
    """
    jax = sys.modules.get("jax")
    if jax is None:
        return _from_environment()
    names, read, defaults = _readers()
    values = read(jax.config)
    mesh = jax.sharding.get_abstract_mesh()
    if values == defaults and mesh.empty:
        return ()
    found = zip(names, values, defaults, strict=True)
    settings = [(name, _plain(value)) for name, value, default in found if value != default]
    settings = [(name, value) for name, value in settings if value != _FIRST_DEVICE]
    return tuple(settings if mesh.empty else [*settings, ("mesh", _mesh_in_force())])


def check_carried(context: Context) -> None:
    """Refuses settings that the daemon cannot have for one call.

    Raises:
        CaptureError: there is one.
    """
    for name, value in context:
        if name in _UNCARRIED:
            raise CaptureError(f"the setting {name} = {value!r} holds in this process only")


def on_mesh(context: Context) -> bool:
    """Whether a mesh or a device is in force for all that is traced."""
    return any(name in ("mesh", "jax_default_device") for name, _ in context)


def jit_is_disabled() -> bool:
    """Whether the program runs under `jax.disable_jit`."""
    jax = sys.modules.get("jax")
    if jax is None:
        return BOOLEANS.get(os.environ.get("JAX_DISABLE_JIT", "").lower(), False)
    return bool(jax.config.jax_disable_jit)


def x64(context: Context) -> bool:
    """Whether 64-bit types are kept."""
    return bool(dict(context).get("jax_enable_x64", False))


@functools.cache
def _readers() -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]], tuple[Any, ...]]:
    """The settings that this version of JAX has, what reads them all at once, and their defaults."""
    names = tuple(name for name in _ALL if hasattr(sys.modules["jax"].config, name))
    return names, operator.attrgetter(*names), tuple(_ALL[name] for name in names)


def _from_environment() -> Context:
    texts = [(name, os.environ.get(name.upper()), default) for name, default in _ALL.items()]
    made = [(name, _parsed(text, default), default) for name, text, default in texts if text is not None]
    return tuple((name, value) for name, value, default in made if value != default)


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
    return getattr(value, "value", value)  # some of JAX's settings are enums


_FIRST_DEVICE = ((), (), (0,), "")  # it is the default anyway


def _mesh_in_force() -> Any:
    jax = sys.modules["jax"]
    mesh = jax.sharding.get_mesh()
    return _as_plain(shardings.of_mesh(jax.sharding.get_abstract_mesh() if mesh.empty else mesh))


@functools.lru_cache(maxsize=64)
def _as_plain(mesh: Mesh) -> Any:
    """A mesh as nested tuples, as settings travel."""
    return (mesh.axes, mesh.types, mesh.devices, mesh.platform)
