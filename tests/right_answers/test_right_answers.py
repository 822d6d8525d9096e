"""Every case of every program here gives what plain JAX gives, in fresh processes under several hash seeds.

In each round, a daemon serves clients whose hash seeds differ from its own and from each other. In the core, that is
one; in the other rounds, a second client meets what the first one left in the daemon. In one round, the clients also
compare each program with a trace of theirs.

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
    `then`: those of later clients, which run the programs with SEEDED cases only.
    """

    seeds: tuple[int, ...]
    verifies: bool = False
    then: tuple[int, ...] = ()

    def __str__(self) -> str:
        return "-".join(["seeds", *map(str, self.seeds), *["verified"] * self.verifies])


CORE = Round((1,), then=(1, 2))
SLOW = [Round((1, 2)), Round((3, 4)), Round((7, 8), verifies=True)]
ROUNDS = [CORE, *(pytest.param(each, marks=pytest.mark.slow) for each in SLOW)]

COMPILED_ONCE = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"}
"""With a folder for it, what a process compiles outside of the daemon is not compiled again by another one."""


WARM, SET, SAID, LOCAL, SEEDED = (named(PROGRAMS, label) for label in ("WARM", "SET", "SAID", "LOCAL", "SEEDED"))

Answers = Callable[[Round], tuple[dict[str, Outcomes], dict[str, Outcomes], list[Outcomes]]]


@pytest.fixture(scope="module")
def answers(new_daemon: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """For a round, what plain JAX gave under the hash seed of either client, and what they and later ones saw."""

    @functools.cache
    def of(these: Round) -> tuple[dict[str, Outcomes], dict[str, Outcomes], list[Outcomes]]:
        clients = dict(zip(("first", "second"), these.seeds, strict=False))
        compiled = {**COMPILED_ONCE, "JAX_COMPILATION_CACHE_DIR": str(tmp_path_factory.mktemp("compiled"))}
        seeded = sorted({case.partition(".")[0] for case in SEEDED})
        plain = {client: run("plain", seed, PROGRAMS, **compiled) for client, seed in clients.items()}
        address = f"unix:{tmp_path_factory.mktemp('d')}/s"
        more = {"JITSERVER_ADDRESS": address, "JITSERVER_VERIFY": "always" if these.verifies else "new", **compiled}
        with new_daemon(address, env={"PYTHONHASHSEED": "100"}):
            served = {client: run("served", seed, PROGRAMS, **more) for client, seed in clients.items()}
            return plain, served, [run("served", seed, PROGRAMS, *seeded, **more) for seed in these.then]

    return of


@pytest.mark.core
@pytest.mark.timeout(2400)  # the first of a round has all programs run four times
@pytest.mark.parametrize("case", cases(PROGRAMS))
@pytest.mark.parametrize("these", ROUNDS, ids=str)
def test_is_what_plain_jax_gives(these: Round, case: str, answers: Answers) -> None:
    plain, served, _ = answers(these)
    for client in plain:
        expected, got = plain[client][case], served[client][case]
        assert "returns" in expected or "_raises_" in case, f"plain JAX: {expected}"
        if "raises" in expected:
            assert got.get("raises") == expected["raises"], f"the {client} client: {got}"
        elif case in SAID and client == "second" and not these.verifies:
            assert expected["returns"]
            assert got.get("returns") == "", f"the {client} client: {got}"
        else:
            assert got.get("returns") == expected["returns"], f"the {client} client: {got}"
        if case in WARM | SET | SAID:
            traced_here = 1 if case in SET and client == "first" else 0
            assert (got["traced_here"], got["ran_here"]) == (traced_here, 0), f"the {client} client: {got}"
            assert client == "first" or these.verifies or got["traced_there"] == 0, f"the {client} client: {got}"
        if case not in LOCAL:
            assert got["ran_here"] == 0, f"the {client} client: {got}"


@pytest.mark.core
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("case", sorted(SEEDED))
def test_what_one_client_traced_another_with_its_hash_seed_finds(case: str, answers: Answers) -> None:
    _, served, then = answers(CORE)
    first, second, other = (outcomes[case] for outcomes in (served["first"], *then))
    assert first["traced_here"] > 0
    assert second["traced_here"] == 0
    assert other["traced_here"] > 0
    assert first["returns"] == second["returns"] == other["returns"]
