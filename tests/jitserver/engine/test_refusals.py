"""Refusals to trace because of ambient reads: permanent only if they are certain, and removable."""

from collections.abc import Callable
from typing import Any

SCRIPT = """
    import json
    from pathlib import Path
    from types import SimpleNamespace

    from jitclient.errors import AmbientInput
    from jitserver.cache.memory import Memory
    from jitserver.cache.store import Store
    from jitserver.cache.tiers import Tiers
    from jitserver.cache.write_behind import Writer
    from jitserver.counters import Counters
    from jitserver.crashes.journal import Journal
    from jitserver.engine import programs
    from jitserver.traces import ambient
    from jitserver.engine.failures import TraceFailed

    messages = {messages}

    def from_capture(*arguments):
        if messages:
            raise AmbientInput(messages.pop(0))
        return SimpleNamespace(seconds={{}})

    programs.program = SimpleNamespace(loaded_for=lambda *arguments: None, from_capture=from_capture)
    made = programs.Programs(Counters(), Tiers(Memory(1, 1), Store(Path(), 0), Writer(lambda: 0)), Journal())
    lookup = SimpleNamespace(locations=b"", signature=None)
    try:
        made._trace("key", SimpleNamespace(lookup=lookup, name="fun", verify=False), b"", print)
    except TraceFailed:
        pass
    refusals = [len(made._of_clients)]
    for prefix in ("other", {prefix!r}):
        made.remove(prefix)
        refusals.append(len(made._of_clients))
    print(json.dumps([refusals, made.counters.traces]))
"""


def test_a_generator_that_changed_once_is_no_refusal(run_script: Callable[..., Any]) -> None:
    assert run_script(SCRIPT.format(messages="[ambient.OF_GENERATORS]", prefix="")) == [[0, 0, 0], 2]
    assert run_script(SCRIPT.format(messages="[ambient.OF_GENERATORS] * 2", prefix="ke")) == [[1, 1, 0], 2]


def test_refusals_are_removed_with_the_programs(run_script: Callable[..., Any]) -> None:
    for prefix in ("", "fun"):
        assert run_script(SCRIPT.format(messages="['a file']", prefix=prefix)) == [[1, 1, 0], 1]
