"""`jitserver cache show`: the details and the texts of a program."""

import json
import os
import stat
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """
    import json, os, jax, numpy as np, jitclient

    @jitclient.jit
    def shown(x):
        return x * 2 + 1

    @jitclient.jit
    def shown_wide(x):
        return x * 3

    @jitclient.jit
    def traced_here(x):
        return x * float(os.environ.get("SCALE", "5"))

    shown(np.zeros((3, 4), np.float32))
    with jax.enable_x64(True):
        shown_wide(np.zeros(3, np.float64))
    np.asarray(traced_here(np.zeros(3, np.float32)))
    print(json.dumps(None))
"""


PLACES = """
    import sys

    import equinox as eqx
    import jax.numpy as jnp
    from flax import nnx

    import jitclient

    if sys.argv[1] == "install":
        jitclient.install()
        jit, filter_jit = nnx.jit, eqx.filter_jit
    else:
        from jitclient.eqx import filter_jit
        from jitclient.nnx import jit

    def of_nodes(model, x):  # line: of_nodes
        return model(x)

    def of_trees(x):  # line: of_trees
        return x + 1

    def of_modules(model, x):  # line: of_modules
        return model(x)

    class Module(eqx.Module):
        weight: jnp.ndarray

        def __call__(self, x):  # line: Module
            return self.weight * x

    class Callable:
        def __call__(self, x):  # line: Callable
            return x - 1

    x = jnp.ones(2)
    jit(of_nodes)(nnx.Linear(2, 3, rngs=nnx.Rngs(0)), x)
    jit(of_trees, graph=False)(x)
    filter_jit(of_modules)(eqx.nn.Identity(), x)
    filter_jit(Module(x))(x)
    jitclient.jit(Callable())(x)
"""


@pytest.fixture(scope="module")
def used(new_daemon: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment for a daemon with three programs, one of them traced by its client."""
    path = tmp_path_factory.mktemp("used") / "program.py"
    path.write_text(textwrap.dedent(PROGRAM))
    with tempfile.TemporaryDirectory(prefix="js-") as folder, new_daemon(f"unix:{folder}/d.sock"):
        env = {"JITSERVER_ADDRESS": f"unix:{folder}/d.sock"}
        subprocess.run([sys.executable, str(path)], env={**os.environ, **env}, check=True, capture_output=True)
        yield env


def test_all_details_are_shown(used: dict[str, str], cli: Callable[..., Any]) -> None:
    [entry] = json.loads(cli("cache", "show", "shown", "--json", env=used).stdout)
    assert entry["label"] == "shown(f32[3,4])"
    assert entry["memory"]["argument_size_in_bytes"] == 48
    assert entry["costs"]["flops"] > 0
    text = cli("cache", "show", entry["key"], env=used).stdout
    assert entry["key"] in text
    assert "argument 48 B" in text
    assert "flops" in text


@pytest.mark.slow
@pytest.mark.parametrize("how", ["install", "decorators"])
def test_functions_of_nnx_and_equinox_are_where_the_user_wrote_them(
    how: str, used: dict[str, str], cli: Callable[..., Any], tmp_path: Path
) -> None:
    path = tmp_path / "places.py"
    path.write_text(textwrap.dedent(PLACES))
    subprocess.run([sys.executable, str(path), how], env={**os.environ, **used}, check=True, capture_output=True)
    lines = {
        name: number
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if (name := line.partition("  # line: ")[2])
    }
    assert len(lines) == 5
    for name, line in lines.items():
        [entry] = json.loads(cli("cache", "show", name, "--json", env=used).stdout)
        assert entry["where"] == f"{path}:{line}"
        assert json.loads(cli("cache", "rm", entry["key"], "--json", env=used).stdout)


@pytest.mark.parametrize(
    ("what", "parts"),
    [
        ("hlo", ["HloModule", "f32[3,4]"]),
        ("stablehlo", ["stablehlo.multiply", "3x4xf32"]),
        ("jaxpr", ["mul", "f32[3,4]"]),
    ],
)
def test_a_text_is_shown_alone_without_styles(
    what: str, parts: list[str], used: dict[str, str], cli: Callable[..., Any]
) -> None:
    done = cli("cache", "show", "shown", f"--{what}", env=used)
    assert done.returncode == 0, done.stderr
    assert all(part in done.stdout for part in parts)
    assert "\x1b" not in done.stdout
    assert "function key" not in done.stdout
    [entry] = json.loads(cli("cache", "show", "shown", f"--{what}", "--json", env=used).stdout)
    assert entry["name"] == "shown"
    assert entry[what].strip() == done.stdout.strip()


def test_a_program_is_traced_again_under_the_settings_of_the_call(
    used: dict[str, str], cli: Callable[..., Any], counts: Callable[..., dict[str, Any]]
) -> None:
    before = counts(used["JITSERVER_ADDRESS"])
    assert "f64[3]" in cli("cache", "show", "shown_wide", "--jaxpr", env=used).stdout
    assert "3xf64" in cli("cache", "show", "shown_wide", "--stablehlo", env=used).stdout
    after = counts(used["JITSERVER_ADDRESS"])
    assert after["traces"] == before["traces"] + 2
    assert after["compiles"] == before["compiles"]


def test_texts_of_a_program_that_its_client_traced(used: dict[str, str], cli: Callable[..., Any]) -> None:
    assert "stablehlo.multiply" in cli("cache", "show", "traced_here", "--stablehlo", env=used).stdout
    done = cli("cache", "show", "traced_here", "--jaxpr", env=used)
    assert done.returncode == 1
    assert "traced in its client" in done.stderr


def test_a_text_of_an_unknown_program_is_an_error(used: dict[str, str], cli: Callable[..., Any]) -> None:
    done = cli("cache", "show", "no-such-key", "--hlo", env=used)
    assert (done.returncode, done.stdout) == (1, "")


SECRETS = """
    import json, numpy as np, jitclient

    TOKEN = "hidden-in-a-global"
    CONFIG = {"token": "hidden-in-a-dict", "bytes": b"hidden-in-bytes"}

    class Account:
        password = "hidden-in-a-class"
        def __init__(self):
            self.key = "hidden-in-an-instance"

    account = Account()

    def keeper():
        local = "hidden-in-a-closure"

        @jitclient.jit
        def keeps(x, given="hidden-in-a-default"):
            lengths = map(len, (TOKEN, CONFIG["token"], CONFIG["bytes"], account.password, account.key, local))
            return x * sum(lengths) * len("hidden-in-code")

        return keeps

    print(json.dumps(float(keeper()(np.float32(1)))))
"""


def test_captured_values_are_never_shown(
    short_path: Path, new_daemon: Callable[..., Any], run_script: Callable[..., Any], cli: Callable[..., Any]
) -> None:
    env = {"JITSERVER_ADDRESS": f"unix:{short_path}/d.sock", "JITSERVER_CACHE_DIR": str(short_path / "cache")}
    with new_daemon(f"unix:{short_path}/d.sock", env=env):
        assert run_script(SECRETS, env=env) > 0
        shown = [cli("cache", "show", "keeps", *options, env=env) for options in ([], ["--json"], ["--jaxpr"])]
    assert [done.returncode for done in shown] == [0, 0, 0]
    assert not any("hidden" in done.stdout + done.stderr for done in shown)
    files = [path for path in (short_path / "cache").rglob("*") if path.is_file()]
    assert any(b"hidden-in-a-dict" in path.read_bytes() for path in files)  # and so:
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    folders = [path for path in (short_path / "cache").rglob("*") if path.is_dir()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in folders} == {0o700}
