"""All that this package and the daemon use of what is not public in jax.

No other module imports it. A version of jax may lack any of it: each function says what it does then. All but
`has_backend`, `backends` and those for plugins import jax.
"""

import contextlib
import functools
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any


def _get(path: str, default: Any = None) -> Any:
    """What jax has by the path of a module in `jax._src` and a name there; the default if it has nothing."""
    module, _, name = path.rpartition(".")
    with contextlib.suppress(ImportError):
        return getattr(importlib.import_module(f"jax._src.{module}"), name, default)
    return default


def has_backend() -> bool:
    """Whether jax has begun to compute, or may have, where it does not say."""
    return "jax" in sys.modules and bool(_get("xla_bridge.backends_are_initialized", lambda: True)())


def backends() -> list[Any]:
    """The backends that jax has begun, by which it computes; none where it does not say."""
    bridge: Any = sys.modules.get("jax._src.xla_bridge")
    return list(getattr(bridge, "_backends", {}).values())


def mesh_of_block() -> Any:
    """The mesh of the innermost `with mesh:`, JAX's older way to set one; None outside of any, or if jax lacks that."""
    resources = _get("mesh.thread_resources")
    return None if resources is None or resources.env.physical_mesh.empty else resources.env.physical_mesh


@functools.cache
def trace_context() -> Callable[[], Any]:
    """Get what returns, fast, an object with all that decides what jax traces now; it returns None if jax lacks it."""
    return _get("config.trace_context", lambda: None)  # type: ignore[no-any-return]


def trace_context_and_level() -> tuple[Callable[[], Any], Any, Any] | None:
    """The function of `trace_context`, the object that holds this thread's current trace, and its value outside of
    traces; None if jax lacks any.
    """
    level = _get("core.trace_state_strong_ref")
    found = _get("config.trace_context"), level, _get("core.eval_trace")
    return found if None not in found and hasattr(level, "value") else None


def window(start: Any, size: int) -> Any:
    """An index that means `start : start + size`, with a size that is static and a start that is not."""
    import jax

    dslice = getattr(jax, "ds", None) or _get("indexing.dslice")
    if dslice is None:  # the older public name needs the import of a large package
        from jax.experimental.pallas import ds as dslice
    return dslice(start, size)


def register_arrays(cls: type, aval_of: Callable[[Any], Any], value_of: Callable[[Any], Any]) -> None:
    """Have jax take instances of a class for arrays, as `interop.introduce` says. Any exception means: another jax."""
    from jax._src import core, dtypes
    from jax._src.interpreters import mlir, pxla

    if hasattr(dtypes, "register_canonicalize_value_handler"):
        dtypes.register_canonicalize_value_handler(cls, value_of)
    else:  # before jax 0.10.2
        dtypes.canonicalize_value_handlers[cls] = value_of
    mlir.register_constant_handler(cls, lambda val, aval: mlir.ir_constant(value_of(val)))
    pxla.shard_arg_handlers[cls] = lambda arrays, *how: pxla.shard_args(*how, [*map(value_of, arrays)])
    core.pytype_aval_mappings[cls] = aval_of


def replace_get_backend(stand_in: Callable[[Any], Any]) -> bool:
    """Put what `stand_in` makes of it in the place of what all public functions ask for a backend, if jax has that."""
    with contextlib.suppress(ImportError, AttributeError):
        from jax._src import xla_bridge

        xla_bridge.get_backend = stand_in(xla_bridge.get_backend)
        return True
    return False


def foreign_functions(platform: str) -> dict[str, Any]:
    """The foreign functions that this process has for a platform, by name: a capsule, or one for each stage. Starts
    jax's backends, as jax registers what it was given only then. Empty if jax does not say.
    """
    import jax

    list_targets = getattr(_get("lib.xla_client"), "custom_call_targets", None)
    if list_targets is None:
        return {}
    jax.devices()
    found: dict[str, Any] = list_targets(platform)
    return found


def find_no_plugins() -> None:
    """Have jax know that no plugin of its backends is installed, if there is none: to look for one takes long."""
    from importlib.metadata import entry_points

    bridge: Any = sys.modules.get("jax._src.xla_bridge")
    with contextlib.suppress(AttributeError):  # another version of jax
        named = os.environ.get("PJRT_NAMES_AND_LIBRARY_PATHS") or entry_points(group="jax_plugins")
        if bridge.jax_plugins is None and not named:
            bridge._discover_and_register_pjrt_plugins()


def find_plugins_in(folder: str) -> None:
    """Have jax look for plugins again if a folder, in which the program's imports look first, describes packages."""
    bridge: Any = sys.modules.get("jax._src.xla_bridge")
    with contextlib.suppress(OSError):
        if bridge and any(name.endswith((".dist-info", ".egg-info", "jax_plugins")) for name in os.listdir(folder)):
            bridge._plugins_registered = False


class Stages:
    """How jax traces and lowers what is jitted: its own functions, and what may take their places."""

    def __init__(self) -> None:
        from jax._src import config, core, dispatch, pjit, tree_util
        from jax._src.interpreters import mlir, pxla
        from jax._src.lib import jax_jit

        self.infer, self.lower = pjit._infer_params, mlir.lower_jaxpr_to_module
        self.is_outside, self.trace_context = core.trace_state_clean, config.trace_context
        self.of_primitive, self._without_unused = dispatch.xla_primitive_callable, pxla._dce_jaxpr
        self.rules = mlir._lowerings, mlir._platform_specific_lowerings["cpu"]
        self._parse, self._registry = jax_jit.parse_arguments, tree_util.tracing_registry
        self._context: Any = None

    def take(self, traced: Any, options: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """What jax does with what `infer` returned for such arguments: the jaxpr to lower, and the dynamic ones."""
        names = options.static_argnums, options.static_argnames
        _, dynamic = self._parse(args, tuple(kwargs.values()), tuple(kwargs), *names, self._registry)
        params = traced.params
        used = self._without_unused(params["jaxpr"], params["keep_unused"], tuple(params["donated_invars"]))
        return used[0], dynamic

    def replace(self, infer: Any, lower: Any) -> None:
        """Put functions of one file, which no traceback is to show, in the places of `infer` and `lower`."""
        from jax._src import pjit, source_info_util, traceback_util
        from jax._src.interpreters import mlir

        for util in (source_info_util, traceback_util):
            util.register_exclusion(infer.__code__.co_filename)
        if self._context is not None:
            self._context.set_thread_pool(mlir.global_thread_pool)
        pjit._infer_params = infer
        mlir.lower_jaxpr_to_module = lower

    @contextlib.contextmanager
    def without_backend(self, lower: Any) -> Iterator[None]:
        """Have jax lower for the CPU without a backend or threads, with a function in the place of `lower`."""
        from jax._src import xla_bridge
        from jax._src.interpreters import mlir, pxla

        if self._context is None:
            self._context = mlir.make_ir_context()
            self._context.enable_multithreading(False)
        with (
            _replaced(mlir, "make_ir_context", lambda: self._context),
            _replaced(mlir, "lower_jaxpr_to_module", lower),
            _replaced(pxla, "_get_and_check_device_assignment", lambda *_: (_NoBackend(), None, 1)),
            _replaced(xla_bridge, "backends", _refuse),
        ):
            yield


@functools.cache
def stages() -> Stages:
    """Those of this process's jax at the first call. AttributeError or ImportError mean that it has others."""
    return Stages()


class _NoBackend:
    platform = "cpu"


def _refuse() -> None:
    raise RuntimeError("a backend must not start before the process is forked")


@contextlib.contextmanager
def _replaced(module: Any, name: str, value: Any) -> Iterator[None]:
    own = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, own)
