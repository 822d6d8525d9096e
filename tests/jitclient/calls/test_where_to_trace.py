"""Each reason of the table decides alone, the first of two wins, and the user reads its sentence."""

import dataclasses
from typing import Any

import pytest

from jitclient import CaptureError
from jitclient.calls.where_to_trace import REASONS, Facts, Where, where_to_trace

ROWS: list[tuple[dict[str, Any], Where, str]] = [
    ({"jit_is_disabled": True}, Where.PLAIN, "runs in this process: jit is disabled"),
    ({"is_part_of_trace": True}, Where.PLAIN, "becomes part of the program that is being traced"),
    (
        {"is_one_of_several": True},
        Where.HERE,
        "this process is one of several (jax.distributed), which the daemon does not support",
    ),
    ({"refusal": "f has crashed 3 daemons", "crashes_daemon": True}, Where.HERE, "f has crashed 3 daemons"),
    ({"refusal": "f holds a lock", "can_trace": False}, Where.HERE, "f holds a lock"),
    ({"uses_outer_trace": True}, Where.HERE, "the function uses a value of another trace"),
    ({"flattens_differently": True}, Where.HERE, "JAX flattens the arguments differently"),
    (
        {"setting": "jax_x = 1"},
        Where.HERE,
        "the setting jax_x = 1 applies to a whole process, so the daemon cannot use it for one call",
    ),
    (
        {"is_placed": True},
        Where.HERE,
        "the program refers to shardings or devices of this process, so it cannot be sent to the daemon",
    ),
    (
        {"callbacks": "pure_callback of g"},
        Where.HERE,
        "the callbacks stay in this process: pure_callback of g",
    ),
    (
        {"foreign_functions": "foreign function mine (jax.ffi)"},
        Where.HERE,
        "the program calls the foreign function mine (jax.ffi), whose code is only in this process",
    ),
    ({"refusal": "f holds a lock"}, Where.EACH_PROCESS, "f holds a lock"),
    ({"unobserved": "JAX traced it before"}, Where.EACH_PROCESS, "JAX traced it before"),
    ({"trace_changes": "the captured values"}, Where.EACH_PROCESS, "the trace changes the captured values"),
    ({"set_order": "f depends on the order of sets"}, Where.CLIENT, "f depends on the order of sets"),
    ({"has_deps": True}, Where.CLIENT, "the function has declared inputs"),
    ({"can_trace": False}, Where.DAEMON, "this process cannot trace functions"),
    ({"is_operation": True}, Where.DAEMON, "the program is jitclient's own"),
    ({"verify": "off"}, Where.DAEMON_FIRST, "JITSERVER_VERIFY=off"),
    ({}, Where.BOTH, "a new program is compared with a trace in this process"),
]
"""For each row of the table, in its order: facts for which it is the first that applies, and the decision."""

WINNERS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"jit_is_disabled": True}, {"is_one_of_several": True}),
    # A program that stays here does so although every process would trace it, or the client for all.
    ({"callbacks": "a callback"}, {"refusal": "f holds a lock"}),
    ({"is_placed": True}, {"set_order": "f depends on the order of sets"}),
    ({"setting": "jax_x = 1"}, {"is_placed": True}),
    # JAX appends the values of another trace to the arguments, which are then others.
    ({"uses_outer_trace": True}, {"flattens_differently": True}),
    # Without a key, no other process finds the program, whatever its inputs.
    ({"refusal": "f holds a lock"}, {"has_deps": True}),
    ({"trace_changes": "the captured values"}, {"has_deps": True}),
    ({"set_order": "f depends on the order of sets"}, {"has_deps": True}),
    # The daemon sees no declared inputs. Without jax, such a call fails, as one of plain JAX does.
    ({"has_deps": True}, {"can_trace": False}),
    ({"is_operation": True}, {"verify": "off"}),
]


@pytest.mark.parametrize("number", range(len(REASONS)), ids=lambda number: REASONS[number].sentence)
def test_each_row_decides(number: int) -> None:
    facts, where, sentence = ROWS[number]
    assert where_to_trace(Facts(**facts)) == (where, sentence)
    assert [bool(reason.applies(Facts(**facts))) for reason in REASONS].index(True) == number


def test_each_row_and_each_fact_is_tested() -> None:
    assert len(ROWS) == len(REASONS)
    assert {name for facts, _, _ in ROWS for name in facts} == {field.name for field in dataclasses.fields(Facts)}


@pytest.mark.parametrize(("winner", "loser"), WINNERS)
def test_the_first_of_two_reasons_wins(winner: dict[str, Any], loser: dict[str, Any]) -> None:
    decision = where_to_trace(Facts(**winner))
    assert decision != where_to_trace(Facts(**loser))
    assert where_to_trace(Facts(**winner, **loser)) == decision


def test_verify_always_compares_operations_and_no_process_without_jax() -> None:
    assert where_to_trace(Facts(verify="always", is_operation=True)).where is Where.BOTH
    assert where_to_trace(Facts(verify="always", can_trace=False)).where is Where.DAEMON


def test_only_a_call_that_runs_here_raises() -> None:
    for facts, where, sentence in ROWS:
        decision = where_to_trace(Facts(**facts))
        if where is Where.HERE:
            with pytest.raises(CaptureError) as raised:
                decision.raise_if_here()
            assert str(raised.value) == sentence
        else:
            decision.raise_if_here()
