"""Tracing and lowering of operations in advance, in the process that forks the others."""

import contextlib
import sys
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from jitclient.jaxside import internals
from jitclient.jaxside.operations import defaults, recipes

_REPLACED = ("_compile_and_write_cache", "_infer_params", "compile", "jit", "lower_jaxpr_to_module")
"""Functions in jax's modules that a run replaces itself."""


class PreparedOperation(NamedTuple):
    """A traced operation, the input and the result of lowering it, and the functions called for it.

    `name` and `how` are the arguments with which JAX lowered the operation, and `module` is the result. `called` has
    namespaces, each with the functions in it that jax may have called.
    """

    traced: Any
    name: str
    how: dict[str, Any]
    module: Any
    called: list[tuple[Mapping[str, Any], dict[str, Any]]]

    def is_unpatched(self) -> bool:
        """Return whether the program has replaced none of the called functions."""
        return all(functions.items() <= namespace.items() for namespace, functions in self.called)

    def is_lowered(self, name: str, how: dict[str, Any]) -> bool:
        """Return whether JAX is to lower the same operation now, with any backend."""
        return (self.name, self.how) == (name, {**how, "backend": None})


prepared: dict[recipes.Recipe, PreparedOperation | None] = {}
"""Operations that this process, or the one that forked it, tried to prepare; None for those that cannot be."""


def prepare(recipe: recipes.Recipe) -> None:
    """Trace and lower an operation for the CPU, for use in the processes that this one forks.

    This process must have started no backend. Warnings must be raised as errors: an operation that warns is then not
    prepared, and each process issues the warning itself.
    """
    prepared[recipe] = None
    # The cause may be another version of jax, a warning, or an object that only the program has.
    with contextlib.suppress(Exception):
        prepared[recipe] = _prepare(recipe)


def _prepare(recipe: recipes.Recipe) -> PreparedOperation:
    import jax

    own = internals.stages()
    if not defaults.settings_unchanged():
        raise ValueError("the settings are not those of a new process")
    operation, args, kwargs = recipes.read(recipe)
    found, called = list[PreparedOperation](), list[Any]()

    def lower(name: str, jaxpr: Any, **how: Any) -> Any:
        result = own.lower(name, jaxpr, **how)
        if not (result.keepalive or result.host_callbacks):
            found.append(PreparedOperation(traced, name, {**how, "backend": None}, result, called))
        return result

    try:
        with _recording_calls(called), own.without_backend(lower):
            traced, _ = own.infer(operation._fun, operation._jit_info, args, kwargs)
            operation.trace(*args, **kwargs).lower(lowering_platforms=("cpu",))
    finally:
        jax.clear_caches()
    if traced.consts or traced.params["jaxpr"].jaxpr.is_high:
        raise ValueError("the operation holds values")
    (one,) = found
    # The result is cached, so forked processes need not search for it.
    recipes.place(operation._fun, operation._jit_info)
    return one


@contextlib.contextmanager
def _recording_calls(called: list[Any]) -> Iterator[None]:
    """Add the functions that jax's code may have called in the `with` block, with the namespaces that hold them."""
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
