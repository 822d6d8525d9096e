"""Every case of every program here gives what plain JAX gives, in fresh processes under several hash seeds.

In each round, a daemon serves clients whose hash seeds differ from its own and from each other. In the core, that is
one client with some programs. In another round, a second client meets what the first one left in the daemon, and a
third one has the hash seed of the first. In the last round, a client also compares each program with a trace of its
own.

A program may say of its cases, by name:
    WARM: the program of neither client is made from its own trace alone, and nothing is traced for the second one.
    SET: as WARM, but the first client's trace makes the program, because it set what installed packages hold.
    SAID: as WARM; they return what their traces print, so one that finds the programs returns nothing.
    LOCAL: they run in the client by design.
    SEEDED: clients trace them, once for each hash seed.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import pytest

from .processes import PROGRAMS, Outcomes, cases, named, run


@dataclasses.dataclass(frozen=True)
class Round:
    """The hash seeds of a daemon's clients, the first one's first.

    `verifies`: clients trace as well, and so import what bodies import: what is loaded may be part of a key.
    `then`: that of a later client, which runs the programs with SEEDED cases only.
    `programs`: those that are run, all by default.
    """

    seeds: tuple[int, ...]
    verifies: bool = False
    then: int | None = None
    programs: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "-".join(["seeds", *map(str, self.seeds), *["verified"] * self.verifies])


CORE = Round((1,), programs=("decorated", "effects", "handles", "made", "nodes", "places", "precision"))
SEEDS = Round((1, 2), then=1)


def marks(these: Round, case: str) -> list[pytest.MarkDecorator]:
    found = [pytest.mark.core if these is CORE else pytest.mark.slow]
    if these.verifies:
        found.append(pytest.mark.thorough)
    if case.startswith("effects."):
        found.append(pytest.mark.callbacks)
    if case in ON_CPU:
        found.append(pytest.mark.cpu(reason=ON_CPU[case]))
    return found


ON_CPU = {"nodes.case_distribution_with_shapes": "eigh"}
"""Cases of what not every platform has, by what that is."""

ROUNDS = [
    pytest.param(these, case, marks=marks(these, case), id=f"{these}-{case}")
    for these in (CORE, SEEDS, Round((3,), verifies=True))
    for case in cases(PROGRAMS)
    if not these.programs or case.partition(".")[0] in these.programs
]

COMPILED_ONCE = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"}
"""With a folder for it, what a process compiles outside of the daemon is not compiled again by another one."""


WARM, SET, SAID, LOCAL, SEEDED = (named(PROGRAMS, label) for label in ("WARM", "SET", "SAID", "LOCAL", "SEEDED"))

Answers = Callable[[Round], tuple[dict[str, Outcomes], dict[str, Outcomes], Outcomes]]


@pytest.fixture(scope="module")
def answers(new_daemon: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """For a round, what plain JAX gave under the hash seed of either client, and what they and a later one saw."""

    @functools.cache
    def of(these: Round) -> tuple[dict[str, Outcomes], dict[str, Outcomes], Outcomes]:
        clients = dict(zip(("first", "second"), these.seeds, strict=False))
        compiled = {**COMPILED_ONCE, "JAX_COMPILATION_CACHE_DIR": str(tmp_path_factory.mktemp("compiled"))}
        seeded = sorted({case.partition(".")[0] for case in SEEDED})
        plain = {client: run("plain", seed, PROGRAMS, *these.programs, **compiled) for client, seed in clients.items()}
        address = f"unix:{tmp_path_factory.mktemp('d')}/s"
        more = {"JITSERVER_ADDRESS": address, "JITSERVER_VERIFY": "always" if these.verifies else "new", **compiled}
        with new_daemon(address, env={"PYTHONHASHSEED": "100"}):
            served = {
                client: run("served", seed, PROGRAMS, *these.programs, **more) for client, seed in clients.items()
            }
            then: Outcomes = {}
            if these.then is not None:
                then = run("served", these.then, PROGRAMS, *seeded, **more)
            return plain, served, then

    return of


@pytest.mark.timeout(2400)  # the first of a round has all programs run
@pytest.mark.parametrize(("these", "case"), ROUNDS)
def test_is_what_plain_jax_gives(these: Round, case: str, answers: Answers) -> None:
    plain, served, _ = answers(these)
    for client in plain:
        expected, got = plain[client][case], served[client][case]
        assert "returns" in expected or "_raises_" in case, f"plain JAX: {expected}"
        if "raises" in expected:
            assert got.get("raises") == expected["raises"], f"the {client} client: {got}"
        elif case in SAID and client == "second":
            assert expected["returns"]
            assert got.get("returns") == "", f"the {client} client: {got}"
        else:
            assert got.get("returns") == expected["returns"], f"the {client} client: {got}"
        if case in WARM | SET | SAID:
            traced_here = 1 if case in SET and client == "first" else 0
            assert (got["traced_here"], got["ran_here"]) == (traced_here, 0), f"the {client} client: {got}"
            assert client == "first" or got["traced_there"] == 0, f"the {client} client: {got}"
        if case not in LOCAL:
            assert got["ran_here"] == 0, f"the {client} client: {got}"


@pytest.mark.slow
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("case", sorted(SEEDED))
def test_what_one_client_traced_another_with_its_hash_seed_finds(case: str, answers: Answers) -> None:
    _, served, then = answers(SEEDS)
    first, other, again = served["first"][case], served["second"][case], then[case]
    assert first["traced_here"] > 0
    assert other["traced_here"] > 0
    assert again["traced_here"] == 0
    assert first["returns"] == other["returns"] == again["returns"]
