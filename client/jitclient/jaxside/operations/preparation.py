"""In the process that forks: operations are traced and lowered."""

import contextlib
import sys
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from jitclient.jaxside import internals
from jitclient.jaxside.operations import defaults, recipes

_REPLACED = ("_infer_params", "jit", "lower_jaxpr_to_module")
"""Functions in modules of jax that a run replaces itself."""


class Prepared(NamedTuple):
    """An operation as it was traced, what JAX was to lower then, what it made of it, and what that called."""

    traced: Any
    name: str
    how: dict[str, Any]
    module: Any
    called: list[tuple[Mapping[str, Any], dict[str, Any]]]

    def is_as_it_was(self) -> bool:
        """Whether the program has replaced nothing of that."""
        return all(functions.items() <= namespace.items() for namespace, functions in self.called)

    def is_lowered(self, name: str, how: dict[str, Any]) -> bool:
        """Whether JAX is to lower the same now, with whatever backend."""
        return (self.name, self.how) == (name, {**how, "backend": None})


prepared: dict[recipes.Recipe, Prepared | None] = {}
"""What this process, or the one that forked it, has tried to prepare; None where that is not possible."""


def prepare(recipe: recipes.Recipe) -> None:
    """Trace and lower an operation for the CPU, for the processes that this one forks. It must have no backend, and
    warnings must be errors: each process is to be warned itself.
    """
    prepared[recipe] = None
    with contextlib.suppress(Exception):  # another version of jax, a warning, or what only a program has
        prepared[recipe] = _prepare(recipe)


def _prepare(recipe: recipes.Recipe) -> Prepared:
    import jax

    own = internals.stages()
    if not defaults.hold():
        raise ValueError("the settings are not those of a new process")
    operation, args, kwargs = recipes.read(recipe)
    found, called = list[Prepared](), list[Any]()

    def lower(name: str, jaxpr: Any, **how: Any) -> Any:
        result = own.lower(name, jaxpr, **how)
        if not (result.keepalive or result.host_callbacks):
            found.append(Prepared(traced, name, {**how, "backend": None}, result, called))
        return result

    try:
        with _noting_calls(called), own.without_backend(lower):
            traced, _ = own.infer(operation._fun, operation._jit_info, args, kwargs)
            operation.trace(*args, **kwargs).lower(lowering_platforms=("cpu",))
    finally:
        jax.clear_caches()
    if traced.consts or traced.params["jaxpr"].jaxpr.is_high:
        raise ValueError("it holds values")
    (one,) = found
    recipes.place(operation._fun, operation._jit_info)  # looked for here, not by each process that is forked
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
