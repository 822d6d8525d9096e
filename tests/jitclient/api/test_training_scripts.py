"""Training scripts that know nothing of jitclient print under it what they print under python."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ...conftest import HASTY
from .programs import Launcher, Program, python
from .test_run_as_main import jitclient

SCRIPTS = Path(__file__).parents[3] / "examples" / "scripts"
NAMES = sorted(path.stem for path in SCRIPTS.glob("*.py"))

THOROUGH = {"equinox_loop": pytest.mark.thorough, "nnx_loop": pytest.mark.thorough}


@pytest.fixture(scope="module")
def address(new_daemon: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    where = f"unix:{tmp_path_factory.mktemp('js')}/d.sock"
    with new_daemon(where, env={"XLA_FLAGS": HASTY}):
        yield where


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [pytest.param(n, marks=THOROUGH.get(n, ())) for n in NAMES])
def test_a_script_prints_what_it_prints_under_python_and_its_rerun_makes_nothing(
    name: str, address: str, counts: Callable[..., dict[str, Any]]
) -> None:
    def run(launcher: Launcher, seed: int) -> tuple[bytes, bytes, int]:
        env = {"JITSERVER_ADDRESS": address, "PYTHONHASHSEED": str(seed), "XLA_FLAGS": HASTY}
        return Program(command=(f"{name}.py",)).run(SCRIPTS, launcher, env)

    plain = run(python, 0)
    assert plain[1:] == (b"", 0)
    assert run(jitclient, 1) == plain
    first = counts(address)
    assert first["misses"]
    assert run(jitclient, 2) == plain
    again = counts(address)
    for count in ("misses", "traces", "compiles", "client_traces", "local_runs"):
        assert again[count] == first[count], count


def test_the_scripts_do_not_name_jitclient() -> None:
    assert len(NAMES) == 4
    assert not [name for name in NAMES if "jitclient" in (SCRIPTS / f"{name}.py").read_text()]
