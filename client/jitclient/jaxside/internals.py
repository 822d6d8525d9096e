"""All private parts of jax that this package and the daemon use, except those of its compiler (`compiler.py`).

No other module imports private parts of jax, or branches on its version. A version of jax may lack any private part;
each docstring states what the function does in that case. A difference between versions has its first version and the
change of jax beside it. All functions import jax but `has_backend`, `backends`, and those for plugins and jaxprs.
"""

import contextlib
import copy
import functools
import importlib
import os
import pickle
import sys
from collections.abc import Callable, Iterator
from typing import Any

from jitclient.core.tracebacks import api_boundary

CALLBACK_LOGGER = "jax._src.callback"
"""Name of the logger that notes a callback which raised."""


def _get(path: str, default: Any = None) -> Any:
    """Return the object at the path "module.name" in `jax._src`; the default if jax lacks it."""
    module, _, name = path.rpartition(".")
    with contextlib.suppress(ImportError):
        return getattr(importlib.import_module(f"jax._src.{module}"), name, default)
    return default


def has_backend() -> bool:
    """Return whether jax has started a backend. If this version of jax does not report it, assume that it has."""
    return "jax" in sys.modules and bool(_get("xla_bridge.backends_are_initialized", lambda: True)())


def backends() -> list[Any]:
    """Return the backends that jax has started; none if this version of jax does not report them."""
    bridge: Any = sys.modules.get("jax._src.xla_bridge")
    return list(getattr(bridge, "_backends", {}).values())


def may_have_threads() -> bool:
    """Return whether jax has started a backend, or may be starting one, without a wait for what starts it."""
    bridge: Any = sys.modules.get("jax._src.xla_bridge")
    try:
        return bridge is not None and (bool(bridge._backends) or bridge._backend_lock.locked())
    except AttributeError:  # another version of jax
        return True


def mesh_of_block() -> Any:
    """Return the mesh of the innermost `with mesh:` block, JAX's older way to set one.

    Return None outside of such blocks, or if jax lacks them.
    """
    resources = _get("mesh.thread_resources")
    return None if resources is None or resources.env.physical_mesh.empty else resources.env.physical_mesh


@functools.cache
def trace_context() -> Callable[[], Any]:
    """Return JAX's `trace_context` function: its value identifies every setting that affects tracing.

    If jax lacks it, return a function that returns None.
    """
    return _get("config.trace_context", lambda: None)  # type: ignore[no-any-return]


def mesh_of_devices() -> Any:
    """Return the object whose `value` is this thread's mesh of devices, of which JAX's trace context has only the axes.

    Return None if jax lacks it. Since jax 0.12, it is in another module.
    """
    return _get("config.device_context") or _get("mesh.device_context")


@functools.cache
def unnamed_trace_context() -> Callable[[], tuple[Any, ...]]:
    """Return a function that returns the part of JAX's trace context that belongs to no named setting and to no mesh.

    This part has values of context managers, such as `set_xla_metadata` and those of `jax.make_user_context`. If jax
    does not show which part that is, the function returns nothing.
    """
    import jax

    context, mark = trace_context(), object()
    named: set[int] = set()
    names = ("mesh_context_manager", "abstract_mesh_context_manager")
    meshes = [_get(f"config.{name}") or _get(f"mesh.{name}") for name in names]
    try:
        for holder in (*jax.config._value_holders.values(), *meshes):
            if hasattr(holder, "swap_local"):
                before = holder.swap_local(mark)
                try:
                    named.update(n for n, value in enumerate(context()) if value is mark)
                finally:
                    holder.set_local(before)
    # Another version of jax.
    except (AttributeError, TypeError):
        return tuple
    return lambda: tuple([value for n, value in enumerate(context()) if n not in named])


def trace_context_and_level() -> tuple[Callable[[], Any], Any, Any] | None:
    """Return the parts of jax that show whether this thread is tracing and with which settings; None if jax lacks any.

    Returns:
        JAX's `trace_context` function, the object whose `value` is this thread's current trace, and that value outside
        of traces.
    """
    level = _get("core.trace_state_strong_ref")
    found = _get("config.trace_context"), level, _get("core.eval_trace")
    return found if None not in found and hasattr(level, "value") else None


def trace_state() -> Callable[..., Any]:
    """Return `jax.extend.core.get_opaque_trace_state`, without the import of `jax.extend`, which imports Pallas."""
    found: Callable[..., Any] | None = _get("core.get_opaque_trace_state")
    if found is not None:
        return found
    from jax.extend.core import get_opaque_trace_state

    return get_opaque_trace_state


def with_flat_arguments(traced: Any) -> Any:
    """Return a traced stage whose arguments are a list of leaves.

    JAX otherwise builds the user's trees with placeholders when it lowers the stage, which no call does. Return the
    stage itself if it has another form.
    """
    import jax

    with contextlib.suppress(AttributeError):
        flat = copy.copy(traced)
        flat._in_tree = jax.tree.structure([0] * traced._in_tree.num_leaves)
        return flat
    return traced


def constants_of(jaxpr: Any) -> Any:
    """Return the constants that a jaxpr holds; None if it holds none and has parameters for them.

    Since jax 0.12, all jaxprs hold them (jax-ml/jax#39009); before, closed ones do.
    """
    return getattr(jaxpr, "consts", None)


def register_arrays(cls: type, aval_of: Callable[[Any], Any], value_of: Callable[[Any], Any]) -> None:
    """Make jax accept instances of a class as arrays; see `interop.register_arrays`.

    Raises:
        Exception: This version of jax has other internals. The exception may be of any type.
    """
    from jax._src import core, dtypes, tree_util
    from jax._src.interpreters import mlir, pxla

    dtypes.register_canonicalize_value_handler(cls, value_of)
    mlir.register_constant_handler(cls, lambda val, aval: mlir.ir_constant(value_of(val)))
    pxla.shard_arg_handlers[cls] = lambda arrays, *how: pxla.shard_args(*how, [*map(value_of, arrays)])
    # `jit`'s dispatch and `device_get` ask this registry for the arrays of this process inside an object.
    # The value is here most often, and each call asks for it.
    flatten = api_boundary(lambda array: ((value_of(array) if array._local is None else array._local,), None))
    tree_util.dispatch_registry.register_node(cls, flatten, lambda _, held: held[0])
    core.pytype_aval_mappings[cls] = aval_of


def replace_get_backend(stand_in: Callable[[Any], Any]) -> bool:
    """Replace the function that all of jax's public functions ask for a backend.

    Args:
        stand_in: Gives the replacement for the original function.

    Returns:
        Whether this version of jax has that function.
    """
    with contextlib.suppress(ImportError, AttributeError):
        from jax._src import xla_bridge

        xla_bridge.get_backend = stand_in(xla_bridge.get_backend)
        return True
    return False


def forward_eval_shape() -> None:
    """Make `jax.eval_shape` call the method `eval_shape` of jitclient's jitted functions, as of JAX's own.

    JAX traces other callables with tracers in place of all arguments, also of static ones.
    """
    import jax

    with contextlib.suppress(ImportError, AttributeError):
        from jax._src import api

        own = api.eval_shape

        @functools.wraps(own)
        @api_boundary
        def eval_shape(fun: Any, *args: Any, **kwargs: Any) -> Any:
            is_jitted = getattr(type(fun), "counts_as_jitted", False) is True
            return (fun.eval_shape if is_jitted else functools.partial(own, fun))(*args, **kwargs)

        jax.eval_shape = api.eval_shape = eval_shape


def foreign_functions(platform: str) -> dict[str, Any]:
    """Return the foreign functions that are registered in this process for a platform, by name.

    The values are a capsule, or one capsule for each stage of the call. The call starts jax's backends, because jax
    only then passes registered functions to XLA. The result is empty if jax does not report them.
    """
    import jax

    list_targets = getattr(_get("lib.xla_client"), "custom_call_targets", None)
    if list_targets is None:
        return {}
    jax.devices()
    found: dict[str, Any] = list_targets(platform)
    return found


def find_no_plugins() -> None:
    """Let jax search for backend plugins in advance if none is installed: the search takes long, and is done once."""
    from importlib.metadata import entry_points

    bridge: Any = sys.modules.get("jax._src.xla_bridge")
    # Another version of jax may lack any of these attributes.
    with contextlib.suppress(AttributeError):
        named = os.environ.get("PJRT_NAMES_AND_LIBRARY_PATHS") or entry_points(group="jax_plugins")
        if bridge.jax_plugins is None and not named:
            bridge._discover_and_register_pjrt_plugins()


def find_plugins_in(directory: str) -> None:
    """Make jax search for plugins again if a directory, the first in the program's import path, describes packages."""
    bridge: Any = sys.modules.get("jax._src.xla_bridge")
    with contextlib.suppress(OSError):
        if bridge and any(name.endswith((".dist-info", ".egg-info", "jax_plugins")) for name in os.listdir(directory)):
            bridge._plugins_registered = False


def picklers() -> tuple[Any, Any]:
    """Return jax's pickler and unpickler of executables.

    If jax lacks them, return the standard pickler and `object`, with which no executable is loaded.
    """
    from jax.experimental import serialize_executable

    found = (getattr(serialize_executable, name, None) for name in ("_JaxPjrtPickler", "_JaxPjrtUnpickler"))
    pickler, unpickler = found
    return pickler or pickle.Pickler, unpickler or object


@functools.cache
def register_native_functions() -> None:
    """Make jax register the addresses of LAPACK's functions.

    jax does so when it first lowers an operation that needs them. An executable that calls them before that would crash
    the process.
    """
    import jax

    with contextlib.suppress(ImportError, AttributeError):
        from jaxlib.cpu import _lapack

        _lapack.initialize()
        return
    jax.jit(jax.numpy.linalg.eigh).lower(jax.ShapeDtypeStruct((2, 2), "float32"))


def fast_calls(
    fun: Any, name: str, missed: Callable[..., Any], static_argnums: tuple[int, ...], static_argnames: tuple[str, ...]
) -> Any:
    """Return a function whose calls JAX's own C++ code makes, as those of `jit(fun)`; None if jax lacks that code.

    The function has a program for each signature. At the call of another signature, it calls `missed`, which returns
    the value of the call, a program from `fast_program` or None, and whether to ask again at the next such call.
    """
    with contextlib.suppress(ImportError, AttributeError, TypeError):
        from jax._src import tree_util
        from jax._src.interpreters import pxla
        from jax._src.lib import _jax

        how = pxla.JitGlobalCppCacheKeys(), tree_util.dispatch_registry, pxla.cc_shard_arg
        # Under `jax.disable_jit`, JAX calls the first one instead.
        without = functools.partial(_value_of_call, missed)
        made = _jax.pjit(name, without, missed, static_argnums, static_argnames, *how, _fast_cache())
        made._fun = fun  # for the checks of `jax.debug_nans`, which run it again
        return made
    return None


def _value_of_call(missed: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return missed(*args, **kwargs)[0]


@functools.cache
def _fast_cache() -> Any:
    from jax._src.lib import _jax

    return _jax.PjitFunctionCache(capacity=4096)


def fast_program(compiled: Any, count: int, results: Any) -> Any:
    """Return a compiled program, of `count` leaves on one device, for `fast_calls`; None if that cannot call it.

    `results` is a tree of the program's results.
    """
    from jax._src import array, tree_util
    from jax._src.interpreters import pxla

    leaves, structure = tree_util.dispatch_registry.flatten(results, None)
    if not all(type(leaf) is array.ArrayImpl for leaf in leaves):
        return None
    made = compiled._executable
    kept = [n in made._kept_var_idx for n in range(count)]
    avals, committed = [leaf.aval for leaf in leaves], [leaf.committed for leaf in leaves]
    places = made._in_shardings, made._out_shardings
    program = made.xla_executable, structure, *places, avals, committed, kept, made._dispatch_in_layouts, ()
    return pxla.MeshExecutableFastpathData(*program)


def uncommitted(array: Any) -> Any:
    """Return an array of one device as one that is not committed to it; the array itself if jax lacks what that needs.

    Results of exported programs are committed, in every version of jax so far.
    """
    with contextlib.suppress(ImportError, AttributeError, TypeError):
        import jax
        from jax._src import array as arrays

        if jax.numpy.issubdtype(array.dtype, jax.dtypes.prng_key):
            data, kind = jax.random.key_data(array), jax.random.key_impl(array)
            return jax.random.wrap_key_data(uncommitted(data), impl=kind)
        return arrays.ArrayImpl(array.aval, array.sharding, array._arrays, committed=False)
    return array


def profiler() -> tuple[Any, Any]:
    """Return the module of XLA's profiler that JAX uses, and JAX's class of options; None twice if jax lacks either."""
    found = _get("profiler._profiler"), _get("profiler.ProfileOptions")
    return found if None not in found and hasattr(found[0], "ProfilerSession") else (None, None)


PROFILE_WRITER = "export_to_xprof"
"""Function of XLA's profiler that writes a profile (jax 0.12, which uses it in place of `stop_and_export`)."""


def runtime_refuses_deleted_arguments() -> bool:
    """Return whether XLA's runtime has an error of its own, a ValueError, for a deleted argument of a jitted function.

    Since jax 0.11, such a call raises what each use of a deleted array raises.
    """
    import jax

    return bool(jax.__version_info__ < (0, 11))


def backend_class() -> Any:
    """Return XLA's class of backends; None if jax lacks it."""
    return getattr(_get("lib.xla_client"), "Client", None)


def hide_from_locations(path: str) -> None:
    """Make jax attribute what code below a directory, or in a file, does to its caller. Without effect if it cannot."""
    register = _get("source_info_util.register_exclusion")
    if register is not None:
        register(path)


class Stages:
    """jax's internal functions that trace and lower jitted functions, and the means to replace them."""

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

    def lowering_inputs(self, traced: Any, options: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """Return the jaxpr to lower and the dynamic arguments, as jax derives them from a result of `infer`."""
        names = options.static_argnums, options.static_argnames
        _, dynamic = self._parse(args, tuple(kwargs.values()), tuple(kwargs), *names, self._registry)
        params = traced.params
        used = self._without_unused(params["jaxpr"], params["keep_unused"], tuple(params["donated_invars"]))
        return used[0], dynamic

    def replace(self, infer: Any, lower: Any) -> None:
        """Replace jax's `infer` and `lower` by functions of one file, and hide that file's frames in tracebacks."""
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
        """Make jax lower for the CPU without a backend or threads, with another function in place of `lower`.

        While the `with` block runs, any attempt of jax to start a backend raises RuntimeError.
        """
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
    """Return the `Stages` of this process's jax, as they were at the first call.

    Raises:
        AttributeError: This version of jax has other internals.
        ImportError: This version of jax has other internals.
    """
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
