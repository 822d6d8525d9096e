"""Comparison of JAX's settings and lowering rules with those of a new process.

While they differ, no operation is recorded and no prepared operation is used.
"""

import functools
import sys
from typing import Any

from jitclient.jaxside.internals import stages

_OURS = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs", "jax_platforms")
"""Settings that a run changes itself and that affect nothing here: the platform is compared when one is lowered."""


def settings_unchanged() -> bool:
    """Return whether settings and rules equal those at the first call in this process or the one that forked it.

    Rules may have been added, but only for primitives that had none.
    """
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
