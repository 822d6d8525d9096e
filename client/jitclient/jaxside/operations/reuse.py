"""In the process that is forked, or any other: what is traced is noted, and what was prepared is used."""

import contextlib
from typing import Any

from jitclient.jaxside import internals
from jitclient.jaxside.operations import defaults, recipes
from jitclient.jaxside.operations.preparation import Prepared, prepared

_MOST_NOTED = 300
_MOST_BYTES = 4096

noted: dict[recipes.Recipe, None] = {}
"""The operations that this process has traced, and that were not prepared."""

_asked_for: dict[int, tuple[Any, Prepared]] = {}
"""What this process is about to lower, by its id."""


def use() -> None:
    """Note what this process traces from now on, and use what was prepared before it was forked. jax is imported."""
    with contextlib.suppress(ImportError, AttributeError):  # another version of jax
        own = internals.stages()
        defaults.hold()  # as from here on

        def infer(fun: Any, options: Any, args: Any, kwargs: Any) -> Any:
            recipe = recipes.write(fun, options, args, kwargs) if own.is_outside() and defaults.hold() else None
            found = None if recipe is None else prepared.get(recipe)
            if found is not None and found.is_as_it_was():
                jaxpr, dynamic = own.take(found.traced, options, args, kwargs)
                _asked_for[id(jaxpr)] = jaxpr, found
                return found.traced, dynamic
            traced = own.infer(fun, options, args, kwargs)
            if recipe is not None and len(recipe) <= _MOST_BYTES and len(noted) < _MOST_NOTED:
                noted[recipe] = None
            return traced

        def lower(name: str, jaxpr: Any, **how: Any) -> Any:
            asked, found = _asked_for.get(id(jaxpr), (None, None))
            if found is not None and asked is jaxpr and found.is_lowered(name, how):
                return found.module
            return own.lower(name, jaxpr, **how)

        own.replace(infer, lower)
