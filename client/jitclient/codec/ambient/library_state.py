"""State that libraries keep in their own modules, and that a trace obeys: settings, and the contexts that are open.

Another process has none of it. Listed is what each library has where nobody has touched it; a part of a path is an
attribute, or a key of a dictionary. Only libraries that are loaded are looked at.
"""

import contextlib
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from jitclient.codec.plain import is_plain
from jitclient.codec.user_code.names import MISSING
from jitclient.errors import AmbientInput, CaptureError

_FLAX = {
    "flax_return_frozendict": False,
    "flax_preserve_adopted_names": False,
    "flax_fix_rng_separator": False,
    "flax_array_ref": False,
    "flax_pytree_module": True,
    "flax_always_shard_variable": True,
    "flax_hijax_variable": False,
    "nnx_graph_mode": True,
    "nnx_graph_updates": True,
}
_E3NN = {
    "irrep_normalization": "component",
    "path_normalization": "element",
    "gradient_normalization": "path",
    "spherical_harmonics_algorithm": "automatic",
    "spherical_harmonics_normalization": "component",
    "custom_einsum_jvp": False,
    "fused": False,
    "sparse_tp": False,
}
_HAIKU = {"check_jax_usage": False, "module_auto_repr": True, "restore_flatmap": False, "rng_reserve_size": 1}

STATE: tuple[tuple[str, str, Any], ...] = (
    *(("flax.configurations", f"config._values.{name}", value) for name, value in _FLAX.items()),
    ("flax.core.spmd", "_axis_rules.rules", ()),
    ("flax.linen.module", "_context.module_stack", [None]),
    ("flax.linen.module", "_context.capture_stack", []),
    ("flax.linen.module", "_context.call_info_stack", []),
    ("flax.linen.module", "_global_interceptor_stack._storage", []),
    ("flax.nnx.bridge.module", "MODULE_CONTEXT.module_stack", [None]),
    ("flax.nnx.graphlib", "GRAPH_CONTEXT.update_context_stacks", {}),
    ("flax.nnx.graphlib", "GRAPH_CONTEXT.ref_index_stack", []),
    ("flax.nnx.graphlib", "GRAPH_CONTEXT.index_ref_stack", []),
    ("flax.nnx.graphlib", "GRAPH_CONTEXT.graph_mode_stack", []),
    ("flax.nnx.graphlib", "GRAPH_CONTEXT.graph_updates_stack", []),
    ("flax.nnx.variablelib", "VARIABLE_CONTEXT.variable_hijax_stack", []),
    ("flax.nnx.variablelib", "VARIABLE_CONTEXT.variable_ref_stack", []),
    ("flax.nnx.variablelib", "VARIABLE_CONTEXT.eager_shard_stack", []),
    ("chex._src.asserts_internal", "DISABLE_ASSERTIONS", False),
    ("equinox._errors", "EQX_ON_ERROR", "raise"),
    ("numpyro.primitives", "_PYRO_STACK", []),
    ("numpyro.distributions.distribution", "_VALIDATION_ENABLED", True),
    ("numpyro.distributions.distribution", "Distribution._validate_args", True),
    ("numpyro.util", "_DISABLE_CONTROL_FLOW_PRIM", False),
    ("jaxtyping._config", "config.jaxtyping_disable", False),
    *(("e3nn_jax._src.config", f"__conf.{name}", value) for name, value in _E3NN.items()),
    *(("haiku._src.config", f"tls.config.{name}", value) for name, value in _HAIKU.items()),
    ("haiku._src.mixed_precision", "_thread_local_state._cls_policy", {}),
    ("haiku._src.mixed_precision", "_thread_local_state._current_policy._storage", []),
    ("haiku._src.base", "frame_stack._storage", []),
    ("haiku._src.module", "interceptor_stack._storage", []),
    ("haiku._src.module", "method_hook_stack._storage", []),
)

_FOUNDATIONS = frozenset({"jax", "jaxlib", "ml_dtypes", "numpy", "scipy"})
"""Packages that use none of these libraries."""


State = tuple[tuple[str, str, Any], ...]
"""Module, path, and the value there; of a list, its items as a tuple."""

READ_ONLY = {("flax.linen.module", "_context.module_stack")}
"""Stacks of objects to which whoever traces only looks up: what a trace pushes there, it pops."""


def changed(packages: Iterable[str]) -> State:
    """What of the state of libraries that a capture of these packages may use is this process's own, to be carried to
    whoever traces; CaptureError if it cannot be, such as an open context.
    """
    if _FOUNDATIONS.issuperset(packages):
        return ()
    if sys.flags.optimize:
        raise CaptureError("Python runs with -O: installed packages do without assert, and not so in the daemon")
    found: list[tuple[str, str, Any]] = []
    for module, path, untouched in STATE:
        value = state_of(module, path)
        if value is not MISSING and value != untouched:
            carried = tuple(value) if isinstance(value, list) else value
            if not (is_plain(carried) or (module, path) in READ_ONLY):
                raise CaptureError(f"a library is in a state that other processes do not share: {module}.{path}")
            found.append((module, path, carried))
    return tuple(found)


@contextlib.contextmanager
def entered(state: State) -> Iterator[None]:
    """Puts the libraries of this process into the state that another has, for a trace, and back into their own. Where
    it has said nothing, they are as nobody has touched them, whatever the variables of this process have made of them.

    Raises:
        CaptureError: a library is not loaded, or has nothing of that name.
        AmbientInput: the trace changed the state, which is a deed in the process of whoever calls.
    """
    own, limit = _all_states(), sys.getrecursionlimit()
    for module, path, _ in state:
        if (module, path) not in own:
            raise CaptureError(f"there is no {module}.{path} here, which the program has set")
    given, failure = own, None
    try:
        for module, path, untouched in STATE:
            if own.get((module, path), untouched) != untouched:
                _put(module, path, untouched)
        for module, path, value in state:
            _put(module, path, value)
        given = _all_states()
        yield
    except BaseException as error:  # what came of a change may be what it raised
        failure = error
    changed = [f"{module}.{path}" for (module, path), was in given.items() if state_of(module, path) != was]
    for (module, path), was in own.items():
        _put(module, path, was)
    if sys.getrecursionlimit() != limit:
        sys.setrecursionlimit(limit)
        changed.append("sys.setrecursionlimit")
    if changed:
        raise AmbientInput(f"it changes the state of a library: {changed[0]}") from failure
    if failure is not None:
        raise failure


def _all_states() -> dict[tuple[str, str], Any]:
    return {(m, p): value for m, p, _ in STATE if (value := state_of(m, p)) is not MISSING}


def state_of(module: str, path: str) -> Any:
    """What is there now, as a copy; MISSING if the library is not loaded, or has nothing of that name."""
    value = _reached(module, path.split("."))
    if isinstance(value, (list, deque)):
        return list(value)
    return dict(value) if isinstance(value, dict) else value


def _reached(module: str, parts: list[str]) -> Any:
    value: Any = sys.modules.get(module, MISSING)
    for part in parts:
        value = value.get(part, MISSING) if isinstance(value, dict) else getattr(value, part, MISSING)
    return value


def _put(module: str, path: str, value: Any) -> None:
    if state_of(module, path) == value:
        return
    *parts, last = path.split(".")
    owner, held = _reached(module, parts), _reached(module, [*parts, last])
    if isinstance(held, (list, deque)):
        held.clear()
        held.extend(value)
    elif isinstance(held, dict):
        held.clear()
        held.update(value)
    elif isinstance(owner, dict):
        owner[last] = value
    else:
        setattr(owner, last, value)
