"""Every case of every program here gives what plain JAX gives, in fresh processes under several hash seeds.

Each daemon serves two clients whose hash seeds differ from its own and from each other. The second client meets what
the first one left in the daemon.

A program may say of its cases, by name:
    WARM: neither client traces or runs anything itself, and the daemon traces nothing for the second.
    LOCAL: they run in the client by design.
    SEEDED: clients trace them, once for each hash seed.
"""

import ast
import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parent
PROGRAMS = FOLDER / "programs"
SEEDS = (1, 2, 3, 4, 5, 6, 7, 8)
VERIFIES = "JITSERVER_TEST_VERIFY" in os.environ
"""Whether clients trace as well, and so import what bodies import: what is loaded may be part of a key."""

Outcomes = dict[str, dict[str, Any]]


def _cases() -> list[str]:
    return [
        f"{path.stem}.{node.name}"
        for path in sorted(PROGRAMS.glob("*.py"))
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("case_")
    ]


def _named(label: str) -> set[str]:
    """The cases that their programs list under a name."""
    return {
        f"{path.stem}.{case}"
        for path in PROGRAMS.glob("*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == label
        for case in ast.literal_eval(node.value)
    }


WARM, LOCAL, SEEDED = map(_named, ("WARM", "LOCAL", "SEEDED"))


def _run(how: str, seed: int, **environment: str) -> Outcomes:
    done = subprocess.run(
        [sys.executable, str(FOLDER / "runner.py"), how, str(PROGRAMS)],
        env={**os.environ, "PYTHONHASHSEED": str(seed), "JITSERVER_FALLBACK": "local", **environment},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-5000:]}"
    outcomes: Outcomes = json.loads(done.stdout.splitlines()[-1])
    return outcomes


Answers = Callable[[tuple[int, ...]], tuple[dict[int, Outcomes], dict[int, dict[str, Outcomes]]]]


@pytest.fixture(scope="module")
def answers(new_daemon: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """For some seeds, what plain JAX gave under each, and what two clients with it saw: one was its daemon's first
    client, the other its daemon's second.
    """

    @functools.cache
    def of(seeds: tuple[int, ...]) -> tuple[dict[int, Outcomes], dict[int, dict[str, Outcomes]]]:
        plain = {seed: _run("plain", seed) for seed in seeds}
        served: dict[int, dict[str, Outcomes]] = {seed: {} for seed in seeds}
        for first, second in zip(seeds, seeds[1:] + seeds[:1], strict=True):
            address = f"unix:{tmp_path_factory.mktemp('d')}/s"
            with new_daemon(address, env={"PYTHONHASHSEED": str(100 + first)}):
                served[first]["first"] = _run("served", first, JITSERVER_ADDRESS=address)
                served[second]["second"] = _run("served", second, JITSERVER_ADDRESS=address)
        return plain, served

    return of


@pytest.mark.timeout(1200)  # the first of them has all programs run six times: 290 s where nothing else runs
@pytest.mark.parametrize("case", _cases())
def test_is_what_plain_jax_gives(case: str, answers: Answers) -> None:
    _compare(case, *answers(SEEDS[:2]))


@pytest.mark.slow
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("case", _cases())
def test_is_what_plain_jax_gives_under_the_other_seeds(case: str, answers: Answers) -> None:
    _compare(case, *answers(SEEDS[2:]))


def _compare(case: str, plain: dict[int, Outcomes], served: dict[int, dict[str, Outcomes]]) -> None:
    for seed, outcomes in plain.items():
        expected = outcomes[case]
        assert "returns" in expected or "_raises_" in case, f"plain JAX: {expected}"
        for client, got in ((client, outcomes[case]) for client, outcomes in served[seed].items()):
            if "raises" in expected:
                assert got.get("raises") == expected["raises"], f"seed {seed}: {got}"
            else:
                assert got.get("returns") == expected["returns"], f"seed {seed}: {got}"
            if case in WARM:
                assert got["traced_here"] == got["ran_here"] == 0, f"seed {seed}: {got}"
                assert client == "first" or VERIFIES or got["traced_there"] == 0, f"seed {seed}: {got}"
            if case not in LOCAL:
                assert got["ran_here"] == 0, f"seed {seed}: {got}"


@pytest.mark.timeout(300)
def test_what_one_client_traced_another_with_its_hash_seed_finds(
    new_daemon: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    address = f"unix:{tmp_path_factory.mktemp('d')}/s"
    with new_daemon(address, env={"PYTHONHASHSEED": "100"}):
        first, second, other = (_run("served", seed, JITSERVER_ADDRESS=address) for seed in (1, 1, 2))
    for case in SEEDED:
        assert first[case]["traced_here"] > 0, case
        assert second[case]["traced_here"] == 0, case
        assert other[case]["traced_here"] > 0, case
        assert first[case]["returns"] == second[case]["returns"] == other[case]["returns"], case
