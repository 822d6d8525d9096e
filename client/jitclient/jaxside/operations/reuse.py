"""Recording of the operations that a process traces, and use of those that were prepared before it was forked."""

import contextlib
from typing import Any

from jitclient.jaxside import internals
from jitclient.jaxside.operations import defaults, recipes
from jitclient.jaxside.operations.preparation import PreparedOperation, prepared

_MAX_RECORDED = 300
_MAX_BYTES = 4096

traced_recipes: dict[recipes.Recipe, None] = {}
"""The recipes of operations that this process traced because they were not prepared."""

_asked_for: dict[int, tuple[Any, PreparedOperation]] = {}
"""The jaxprs that this process is about to lower, by id, each with the prepared operation that it belongs to."""


def use() -> None:
    """Record the operations that this process traces from now on, and use prepared ones. jax must be imported."""
    # Another version of jax may lack the internals.
    with contextlib.suppress(ImportError, AttributeError):
        own = internals.stages()
        # The first call stores the settings that later calls compare with.
        defaults.settings_unchanged()

        def infer(fun: Any, options: Any, args: Any, kwargs: Any) -> Any:
            recipe = (
                recipes.write(fun, options, args, kwargs)
                if own.is_outside() and defaults.settings_unchanged()
                else None
            )
            found = None if recipe is None else prepared.get(recipe)
            if found is not None and found.is_unpatched():
                jaxpr, dynamic = own.lowering_inputs(found.traced, options, args, kwargs)
                _asked_for[id(jaxpr)] = jaxpr, found
                return found.traced, dynamic
            traced = own.infer(fun, options, args, kwargs)
            if recipe is not None and len(recipe) <= _MAX_BYTES and len(traced_recipes) < _MAX_RECORDED:
                traced_recipes[recipe] = None
            return traced

        def lower(name: str, jaxpr: Any, **how: Any) -> Any:
            asked, found = _asked_for.get(id(jaxpr), (None, None))
            if found is not None and asked is jaxpr and found.is_lowered(name, how):
                return found.module
            return own.lower(name, jaxpr, **how)

        own.replace(infer, lower)
