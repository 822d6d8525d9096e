"""A process gets a program of another one where the state of its packages gives the same, and in no other state."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jitclient.capture.user_code import installed

from . import states
from .states import STATES, looked_up, traced, write_packages

CHANGES = ("", "5", "6")


@pytest.fixture(scope="module", autouse=True)
def packages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Put the packages in a folder on the path; afterwards, restore all."""
    folder = tmp_path_factory.mktemp("library") / "site-packages"
    write_packages(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        patch.setenv("G", "")
        yield folder
    states.restore_foundations()
    for name in [each for each in sys.modules if each.startswith("mf_")]:
        del sys.modules[name]
    for function in (installed.is_user_module, installed.package_of):
        function.cache_clear()


@pytest.mark.parametrize("name", STATES)
def test_a_state_gets_its_own_program_and_no_other(name: str) -> None:
    made = {g: traced(name, g) for g in CHANGES}
    lists = [reads.names for _, reads in made.values()]
    for g in CHANGES:
        found = looked_up(name, g, lists)
        hits = [value for (value, reads), state in zip(made.values(), found, strict=True) if state == reads.state]
        assert set(hits) == {made[g][0]}
    assert all(not (reads.nonrepeatable or reads.ambient or reads.unobserved_reason) for _, reads in made.values())
    assert len({value for value, _ in made.values()}) > 1


@pytest.mark.timeout(300)
def test_in_fresh_processes_too(run_script: Callable[..., Any], packages: Path, tmp_path: Path) -> None:
    given = tmp_path / "given.json"

    def run(g: str, seed: int) -> Any:
        return run_script(
            Path(states.__file__).read_text(), str(packages), str(given), env={"GIVEN": g, "PYTHONHASHSEED": str(seed)}
        )

    given.write_text("{}")
    made = {g: run(g, 1) for g in CHANGES}
    given.write_text(json.dumps({name: [made[g][name]["names"] for g in CHANGES] for name in STATES}))
    for g in CHANGES:
        found = run(g, 2)
        for name in STATES:
            states_of = zip(CHANGES, found[name]["states"], strict=True)
            hits = [made[other][name]["value"] for other, state in states_of if state == made[other][name]["state"]]
            assert set(hits) == {found[name]["value"]}, name
