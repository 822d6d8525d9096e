"""Whether JAX's settings and its rules for lowering are as in a new process: elsewhere nothing is noted or used."""

import functools
import sys
from typing import Any

from jitclient.jaxside.internals import stages

_OURS = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs", "jax_platforms")
"""Settings that a run changes itself, and that decide nothing here: the platform is compared when one is lowered."""


def hold() -> bool:
    """Whether they are as when this process, or the one that forked it, first asked."""
    settings, rules, primitives = _first()
    return _settings() == settings and all(
        usual.items() <= now.items() and not (len(now) > len(usual) and primitives & (now.keys() - usual.keys()))
        for usual, now in zip(rules, stages().rules, strict=True)
    )


@functools.cache
def _first() -> tuple[Any, list[dict[Any, Any]], set[Any]]:
    rules = [dict(rules) for rules in stages().rules]
    return _settings(), rules, set().union(*rules)


def _settings() -> Any:
    values = sys.modules["jax"].config.values
    return {name: value for name, value in values.items() if name not in _OURS}, stages().trace_context()
