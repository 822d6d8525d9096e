"""`jitserver cache why`: how a program differs from the most similar earlier one, or from a given one."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np

import jitclient


def asked_about(rows: int, rate: float) -> str:
    """Makes a program; returns the name of its function."""

    def asked_why(x: Any) -> Any:
        return x * rate

    jitclient.jit(asked_why)(np.zeros((rows, 2), np.float32))
    return asked_why.__name__


def test_it_names_the_differences_from_the_most_similar_earlier_program(daemon: str, cli: Callable[..., Any]) -> None:
    name = asked_about(3, 0.5)
    assert "resembles no other program in the cache" in cli("cache", "why", name).stdout
    asked_about(4, 0.5)
    newest = cli("cache", "why", name).stdout
    assert newest.startswith("asked_why(f32[4,2]) ")
    assert newest.splitlines()[1].startswith("differs from asked_why(f32[3,2]) ")
    assert newest.splitlines()[2:] == ["  argument x: float32[3,2] -> float32[4,2]"]

    asked_about(4, 0.25)
    entries = json.loads(cli("cache", "show", name, "--json").stdout)
    first, second, third = (entry["key"] for entry in sorted(entries, key=lambda entry: entry["created"]))
    told = json.loads(cli("cache", "why", third[:12], "--json").stdout)
    assert (told["key"], told["nearest"]["key"]) == (third, second)
    rate = {"what": "closure rate of asked_why", "old": "0.5", "new": "0.25", "where": "", "row": "capture"}
    assert told["differences"] == [rate]
    assert json.loads(cli("cache", "why", second, "--json").stdout)["nearest"]["key"] == first

    both = cli("cache", "why", third, first).stdout.splitlines()
    assert both[2:] == ["  closure rate of asked_why: 0.5 -> 0.25", "  argument x: float32[3,2] -> float32[4,2]"]
    assert cli("cache", "why", third, third).stdout.splitlines()[2:] == ["  nothing"]


def test_a_key_that_matches_nothing_has_status_1(daemon: str, cli: Callable[..., Any]) -> None:
    name = asked_about(5, 0.5)
    for arguments in (("no-such-key",), (name, "no-such-key")):
        done = cli("cache", "why", *arguments)
        assert done.returncode == 1
        assert "'no-such-key'" in done.stderr
        assert done.stdout == ""
    assert cli("cache", "why", "").returncode == 2


def test_it_has_help(cli: Callable[..., Any]) -> None:
    text = cli("cache", "why", "--help").stdout
    assert "KEY [KEY2]" in text
    assert "differs from the" in " ".join(text.split())
