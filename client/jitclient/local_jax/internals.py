"""What is not public in jax, for all but `operations`.

A version of jax may lack any of it: each function says what it does then. All but
`has_backend` import jax.
"""

import contextlib
import functools
import importlib
import sys
from collections.abc import Callable
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


def mesh_of_block() -> Any:
    """The mesh of the innermost `with mesh:`, JAX's older way to set one; None outside of any, or if jax lacks that."""
    resources = _get("mesh.thread_resources")
    return None if resources is None or resources.env.physical_mesh.empty else resources.env.physical_mesh


@functools.cache
def trace_context() -> Callable[[], Any]:
    """The function that returns an object with everything that decides what jax traces now, fast to get and to compare.
    It returns None if jax has no such function.
    """
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
    """Have jax take instances of a class for arrays; arguments as of `interop.introduce`. Any exception means that this
    version of jax does that in another way.
    """
    from jax._src import core, dtypes
    from jax._src.interpreters import mlir, pxla

    def shard(arrays: Any, *how: Any) -> Any:
        return pxla.shard_args(*how, [value_of(array) for array in arrays])

    def constant(val: Any, aval: Any) -> Any:
        return mlir.ir_constant(value_of(val))

    if hasattr(dtypes, "register_canonicalize_value_handler"):
        dtypes.register_canonicalize_value_handler(cls, value_of)
    else:  # before jax 0.10.2
        dtypes.canonicalize_value_handlers[cls] = value_of
    mlir.register_constant_handler(cls, constant)
    pxla.shard_arg_handlers[cls] = shard
    core.pytype_aval_mappings[cls] = aval_of


def replace_get_backend(stand_in: Callable[[Any], Any]) -> bool:
    """Put what `stand_in` makes of it in the place of what all public functions ask for a backend, if jax has that."""
    with contextlib.suppress(ImportError, AttributeError):
        from jax._src import xla_bridge

        xla_bridge.get_backend = stand_in(xla_bridge.get_backend)
        return True
    return False
