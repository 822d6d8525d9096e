"""A compilation of JAX in the process of a run is found by the next one."""

import json
from collections.abc import Callable
from typing import Any

import pytest

OPERATIONS = """
    import json, sys
    import jax

    value = float(jax.numpy.linalg.norm(jax.numpy.arange(7.0)))
    module = sys.modules.get("jitclient.jaxside.compilation_cache")
    cache = module and module.own()
    counts = [cache.found, cache.compiled] if cache else [0, 0]
    print(json.dumps([value, *counts, jax.config.jax_compilation_cache_dir]))
"""


@pytest.fixture
def run(cold: Any) -> Callable[..., Any]:
    def run(*options: str, **variables: str) -> Any:
        done = cold.run(*options, cold.script(OPERATIONS), env=variables)
        assert (done.returncode, done.stderr) == (0, "")
        return json.loads(done.stdout)

    return run


def test_single_operations_are_found_by_the_next_run(run: Callable[..., Any], cold: Any) -> None:
    value, hits, misses, configured = run()
    assert hits == 0 < misses
    assert configured is None
    assert len(list((cold.folder / "cache").glob("**/compilations/*"))) == misses
    assert run() == [value, misses, 0, None]


@pytest.mark.slow
def test_they_are_found_where_the_daemon_is_elsewhere(run: Callable[..., Any]) -> None:
    value, _, misses, _ = run(JITSERVER_ADDRESS="ssh://elsewhere.invalid")
    assert run(JITSERVER_ADDRESS="ssh://elsewhere.invalid") == [value, misses, 0, None]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "variables", "configured"),
    [
        ([], {"JAX_COMPILATION_CACHE_DIR": "mine"}, "mine"),
        (["--no-jit"], {}, None),
        ([], {"JITSERVER_CLIENT_CACHE": "0"}, None),
    ],
    ids=["the user's own", "without us", "a user who says no"],
)
def test_otherwise_jax_is_left_as_it_is(
    run: Callable[..., Any], options: list[str], variables: dict[str, str], configured: str | None, cold: Any
) -> None:
    assert run(*options, **variables)[3] == configured
    assert not list((cold.folder / "cache").glob("**/compilations/*"))
