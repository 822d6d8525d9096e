"""Where jitclient is in use, the client's own jax keeps its compilations, under the same keys however it is used."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import run_python

PROGRAM = """
import json, sys
USE
import jax, jax.numpy as jnp
value = float(jnp.linalg.norm(jnp.tanh(jnp.arange(7.0))))
cache = sys.modules["jitclient.jaxside.compilation_cache"].own()
print(json.dumps([value, [cache.found, cache.compiled] if cache else None]))
"""
WAYS = {
    "decorator": ("import jitclient; jitclient.jit(lambda x: x + 1)", ()),
    "install": ("import jitclient; jitclient.install()", ()),
    "module": ("", ("-m", "jitclient")),
}


@pytest.fixture
def run(tmp_path: Path, short_path: Path) -> Callable[..., Any]:
    def run(use: str, options: tuple[str, ...], **env: str) -> Any:
        path = tmp_path / "program.py"
        path.write_text(PROGRAM.replace("USE", use))
        done = run_python(*options, str(path), env={"JITSERVER_CACHE_DIR": str(short_path), **env})
        assert (done.returncode, done.stderr) == (0, "")
        return json.loads(done.stdout)

    return run


def test_each_way_finds_the_compilations_of_the_others(run: Callable[..., Any]) -> None:
    first, *others = WAYS.values()
    value, (found, compiled) = run(*first)
    assert found == 0 < compiled
    assert [run(*way) for way in others] == [[value, [compiled, 0]]] * len(others)


def test_an_import_alone_keeps_nothing(run: Callable[..., Any], short_path: Path) -> None:
    assert run("import jitclient.jaxside.compilation_cache", ())[1] is None
    assert run("import jitclient.jaxside.compilation_cache", ("-m", "jitclient", "--no-jit"))[1] is None
    assert not list(short_path.glob("*/compilations"))


def test_a_user_may_say_no(run: Callable[..., Any]) -> None:
    assert run(*WAYS["module"], JITSERVER_CLIENT_CACHE="0")[1] is None
