"""What JAX compiles in the process of a run is there for the next one."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

OPERATIONS = """
    import collections, json
    import jax

    seen = collections.Counter()
    jax.monitoring.register_event_listener(lambda event, **_: seen.update([event.rpartition("/")[2]]))
    value = float(jax.numpy.linalg.norm(jax.numpy.arange(7.0)))
    print(json.dumps([value, seen["cache_hits"], seen["cache_misses"], jax.config.jax_compilation_cache_dir]))
"""


@pytest.fixture
def run(cold: Any) -> Callable[..., Any]:
    def run(*options: str, **variables: str) -> Any:
        done = cold.run(*options, cold.script(OPERATIONS), env=variables)
        assert (done.returncode, done.stderr) == (0, "")
        return json.loads(done.stdout)

    return run


def test_single_operations_are_found_by_the_next_run(run: Callable[..., Any], cold: Any) -> None:
    value, hits, misses, folder = run()
    assert hits == 0 < misses
    assert Path(folder).is_relative_to(cold.folder / "cache")
    assert run() == [value, misses, 0, folder]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "variables", "folder"),
    [
        ([], {"JAX_COMPILATION_CACHE_DIR": "mine"}, "mine"),
        (["--no-jit"], {}, None),
        ([], {"JITSERVER_ADDRESS": "ssh://elsewhere.invalid"}, None),
    ],
    ids=["the user's own", "without us", "no daemon here limits it"],
)
def test_otherwise_jax_is_left_as_it_is(
    run: Callable[..., Any], options: list[str], variables: dict[str, str], folder: str | None
) -> None:
    assert run(*options, **variables)[3] == folder
