"""Single operations outside of jitted functions, traced and lowered before a process is forked that will need them.

JAX traces and lowers each of them in each process, which takes longer than the rest of many a program. Here a process
notes which it traced. Another one, that has started no backend, prepares them. What it forks finds them where the
operation, the types of its arguments and all of JAX's settings are the same. JAX's own caches keep nothing of it, so
that what the program itself traces is as without it.

This uses what is not public in jax. If a version of jax lacks it, nothing is noted or prepared.
"""

import contextlib
import functools
import io
import os
import pickle
import sys
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

Recipe = bytes
"""An operation, its static arguments and the types of the others, pickled."""

_MOST_NOTED = 300
_MOST_BYTES = 4096
_OURS = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs", "jax_platforms")
"""Settings that a run changes itself, and that decide nothing here: the platform is compared when one is lowered."""

_REPLACED = ("_infer_params", "jit", "lower_jaxpr_to_module")
"""Functions in modules of jax that a run replaces itself."""

_SCALARS = (bool, int, float, complex)
_ARRAYS = ("jax", "jaxlib", "ml_dtypes", "numpy")
"""The packages whose arrays and scalars have the same type everywhere."""


class _Type(NamedTuple):
    """Of an argument that is not static."""

    shape: tuple[int, ...]
    dtype: Any
    weak_type: bool


class _Prepared(NamedTuple):
    """An operation as it was traced, what JAX was to lower then, what it made of it, and what that called."""

    traced: Any
    name: str
    how: dict[str, Any]
    module: Any
    called: list[tuple[Mapping[str, Any], dict[str, Any]]]

    def is_as_it_was(self) -> bool:
        """Whether the program has replaced nothing of that."""
        return all(functions.items() <= namespace.items() for namespace, functions in self.called)


_noted: dict[Recipe, None] = {}
_prepared: dict[Recipe, _Prepared | None] = {}
"""None for those that it is not possible to prepare."""

_asked_for: dict[int, tuple[Any, _Prepared]] = {}
"""What this process is about to lower, by its id."""


# ---- in the process that forks


def prepare(recipe: Recipe) -> None:
    """Trace and lower an operation for the CPU, for the processes that this one forks. It must have no backend, and
    warnings must be errors: each process is to be warned itself.
    """
    _prepared[recipe] = None
    with contextlib.suppress(Exception):  # another version of jax, a warning, or what only a program has
        _prepared[recipe] = _prepare(recipe)


def is_prepared(recipe: Recipe) -> bool:
    """Whether this process has tried to prepare an operation."""
    return recipe in _prepared


def _prepare(recipe: Recipe) -> _Prepared:
    import jax
    from jax._src import xla_bridge
    from jax._src.interpreters import mlir, pxla

    own = _jax()
    if not own.is_usual():
        raise ValueError("the settings are not those of a new process")
    place, arguments = _Unpickler(io.BytesIO(recipe)).load()
    args, kwargs = jax.tree.map(_stand_in, arguments, is_leaf=lambda leaf: isinstance(leaf, _Type))
    operation, found, called = _operation(*place), list[_Prepared](), list[Any]()

    def lower(name: str, jaxpr: Any, **how: Any) -> Any:
        result = own.lower(name, jaxpr, **how)
        if not (result.keepalive or result.host_callbacks):
            found.append(_Prepared(traced, name, _without_backend(how), result, called))
        return result

    try:
        with (
            _noting_calls(called),
            _replaced(mlir, "make_ir_context", _context),
            _replaced(mlir, "lower_jaxpr_to_module", lower),
            _replaced(pxla, "_get_and_check_device_assignment", lambda *_: (_NoBackend(), None, 1)),
            _replaced(xla_bridge, "backends", _refuse),
        ):
            traced, _ = own.infer(operation._fun, operation._jit_info, args, kwargs)
            operation.trace(*args, **kwargs).lower(lowering_platforms=("cpu",))
    finally:
        jax.clear_caches()
    if traced.consts or traced.params["jaxpr"].jaxpr.is_high:
        raise ValueError("it holds values")
    (one,) = found
    _place(operation._fun, operation._jit_info)  # looked for here, not by each process that is forked
    return one


@contextlib.contextmanager
def _noting_calls(called: list[Any]) -> Iterator[None]:
    """Add what of jax code may have called, with the namespaces in which it may have found it."""
    names, places = set[str](), set[tuple[str, str]]()

    def see(frame: Any, event: str, _: Any) -> None:
        names.update(frame.f_code.co_names)
        places.add((frame.f_globals.get("__name__", ""), frame.f_code.co_qualname.partition(".")[0]))

    sys.setprofile(see)
    try:
        yield
    finally:
        sys.setprofile(None)
    names.difference_update(_REPLACED)
    own = [(sys.modules[module], top) for module, top in sorted(places) if module.startswith("jax.")]
    classes = [one for module, top in own if isinstance(one := vars(module).get(top), type)]
    for space in map(vars, dict.fromkeys((*(module for module, _ in own), *classes))):
        functions = {name: space[name] for name in names & space.keys() if callable(space[name])}
        if functions:
            called.append((space, functions))


@contextlib.contextmanager
def _replaced(module: Any, name: str, value: Any) -> Iterator[None]:
    own = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, own)


class _Unpickler(pickle.Unpickler):
    """Imports nothing."""

    def find_class(self, module: str, name: str) -> Any:
        if module not in sys.modules:
            raise pickle.UnpicklingError(module)
        return super().find_class(module, name)


class _NoBackend:
    platform = "cpu"


def _refuse() -> None:
    raise RuntimeError("a backend must not start before the process is forked")


def _stand_in(leaf: Any) -> Any:
    import jax

    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, weak_type=leaf.weak_type) if isinstance(leaf, _Type) else leaf


@functools.cache
def _context() -> Any:
    """The MLIR context of all that is prepared. It starts no threads."""
    context = _jax().context()
    context.enable_multithreading(False)
    return context


def find_no_plugins() -> None:
    """Have JAX know that no plugin of its backends is installed, if there is none: to look for one takes long."""
    from importlib.metadata import entry_points

    bridge: Any = sys.modules["jax._src.xla_bridge"]
    with contextlib.suppress(AttributeError):  # another version of jax
        named = os.environ.get("PJRT_NAMES_AND_LIBRARY_PATHS") or entry_points(group="jax_plugins")
        if bridge.jax_plugins is None and not named:
            bridge._discover_and_register_pjrt_plugins()


# ---- in the process that is forked


def find_plugins_in(folder: str) -> None:
    """Have JAX look for plugins again if a folder, in which the program's imports look first, describes packages."""
    bridge: Any = sys.modules.get("jax._src.xla_bridge")
    with contextlib.suppress(OSError):
        if bridge and any(name.endswith((".dist-info", ".egg-info", "jax_plugins")) for name in os.listdir(folder)):
            bridge._plugins_registered = False


def noted() -> list[Recipe]:
    """The operations that this process has traced, and that were not prepared."""
    return list(_noted)


def use() -> None:
    """Note what this process traces from now on, and use what was prepared before it was forked. jax is imported."""
    with contextlib.suppress(ImportError, AttributeError):  # another version of jax
        own = _jax()
        from jax._src import pjit, source_info_util, traceback_util
        from jax._src.interpreters import mlir

        for util in (source_info_util, traceback_util):
            util.register_exclusion(__file__)
        if _prepared:
            _context().set_thread_pool(mlir.global_thread_pool)

        def infer(fun: Any, options: Any, args: Any, kwargs: Any) -> Any:
            recipe = _recipe(fun, options, args, kwargs) if own.is_outside() and own.is_usual() else None
            found = None if recipe is None else _prepared.get(recipe)
            if found is not None and found.is_as_it_was():
                return own.take(found, options, args, kwargs)
            traced = own.infer(fun, options, args, kwargs)
            if recipe is not None and len(recipe) <= _MOST_BYTES and len(_noted) < _MOST_NOTED:
                _noted[recipe] = None
            return traced

        def lower(name: str, jaxpr: Any, **how: Any) -> Any:
            asked, found = _asked_for.get(id(jaxpr), (None, None))
            if found is not None and asked is jaxpr and (found.name, found.how) == (name, _without_backend(how)):
                return found.module
            return own.lower(name, jaxpr, **how)

        pjit._infer_params = infer  # type: ignore[assignment]
        mlir.lower_jaxpr_to_module = lower  # type: ignore[assignment]


class _Jax:
    """What JAX does itself, and under which settings and rules it does so in a new process."""

    def __init__(self) -> None:
        from jax._src import config, core, pjit, tree_util
        from jax._src.interpreters import mlir, pxla
        from jax._src.lib import jax_jit

        self.infer, self.lower, self.context = pjit._infer_params, mlir.lower_jaxpr_to_module, mlir.make_ir_context
        self.is_outside = core.trace_state_clean
        self._without_unused = pxla._dce_jaxpr
        self._parse, self._registry = jax_jit.parse_arguments, tree_util.tracing_registry
        self._trace_context, self._rules = config.trace_context, (mlir._lowerings, mlir._platform_specific_lowerings)
        self._usual = self._settings(), self._trace_context()
        self._usual_rules = [dict(rules) for rules in self._all_rules()]
        self._primitives = {primitive for rules in self._usual_rules for primitive in rules}

    def is_usual(self) -> bool:
        """Whether settings and rules for lowering are as in a new process."""
        return (self._settings(), self._trace_context()) == self._usual and all(
            map(self._has_own_rules, self._usual_rules, self._all_rules())
        )

    def _has_own_rules(self, usual: dict[Any, Any], now: dict[Any, Any]) -> bool:
        is_longer = len(now) > len(usual)
        return usual.items() <= now.items() and not (is_longer and self._primitives & (now.keys() - usual.keys()))

    def take(self, found: _Prepared, options: Any, args: Any, kwargs: Any) -> Any:
        """Do as JAX's own does that traces, with what was prepared."""
        names = options.static_argnums, options.static_argnames
        _, dynamic = self._parse(args, tuple(kwargs.values()), tuple(kwargs), *names, self._registry)
        params = found.traced.params
        jaxpr = self._without_unused(params["jaxpr"], params["keep_unused"], tuple(params["donated_invars"]))[0]
        _asked_for[id(jaxpr)] = jaxpr, found
        return found.traced, dynamic

    def _settings(self) -> dict[str, Any]:
        return {name: value for name, value in sys.modules["jax"].config.values.items() if name not in _OURS}

    def _all_rules(self) -> tuple[dict[Any, Any], ...]:
        return self._rules[0], self._rules[1]["cpu"]


@functools.cache
def _jax() -> _Jax:
    return _Jax()


def _without_backend(how: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in how.items() if name != "backend"}


# ---- recipes


def _recipe(fun: Any, options: Any, args: Any, kwargs: Any) -> Recipe | None:
    """The recipe of what JAX is asked to trace; None for what no other process could trace."""
    import jax

    try:
        place = _place(fun, options)
        positional = tuple(
            arg if at in options.static_argnums else jax.tree.map(_type_of, arg) for at, arg in enumerate(args)
        )
        named = {
            name: arg if name in options.static_argnames else jax.tree.map(_type_of, arg)
            for name, arg in kwargs.items()
        }
        into = io.BytesIO()
        pickler = pickle.Pickler(into, 5)
        pickler.fast = True  # equal ones are the same bytes, whichever of their parts are one object
        pickler.dump((place, (positional, named)))
    except Exception:  # such as a function that cannot be pickled
        return None
    return into.getvalue()


def _type_of(leaf: Any) -> _Type:
    import jax

    kind = type(leaf)
    if kind not in _SCALARS and kind.__module__.partition(".")[0] not in _ARRAYS:
        raise TypeError(kind)
    if isinstance(leaf, jax.core.Tracer) or (isinstance(leaf, jax.Array) and leaf.committed):
        raise TypeError(kind)
    found = jax.typeof(leaf)
    if found != jax.core.ShapedArray(found.shape, found.dtype, weak_type=found.weak_type):
        raise TypeError(found)
    return _Type(found.shape, found.dtype, found.weak_type)


def _place(fun: Any, options: Any) -> tuple[str, str, Any]:
    """Where jax has an operation: a primitive with its parameters, or else a function that is jitted."""
    if getattr(fun, "_apply_primitive", False):
        inner = dict(zip(fun.__code__.co_freevars, (cell.cell_contents for cell in fun.__closure__), strict=True))
        return (*_place_of(inner["prim"]), inner["params"])
    module, name = fun.__module__, fun.__qualname__
    found = _operation(module, name, None) if module.partition(".")[0] == "jax" else None
    if found is None or found._fun is not fun or found._jit_info is not options:
        raise LookupError(name)
    return module, name, None


@functools.cache
def _place_of(primitive: Any) -> tuple[str, str]:
    name = f"{primitive.name}_p"
    modules = [(path, module) for path, module in list(sys.modules.items()) if path.startswith("jax.")]
    return min((path, name) for path, module in modules if vars(module).get(name) is primitive)


def _operation(module: str, name: str, params: Any) -> Any:
    from jax._src import dispatch

    found = functools.reduce(getattr, name.split("."), sys.modules[module])
    if params is not None:
        return dispatch.xla_primitive_callable(found, **params)
    return getattr(found, "_func", found)  # of jnp.ufunc
