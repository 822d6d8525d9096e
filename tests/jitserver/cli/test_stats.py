"""`jitserver stats`: figures of programs, added up by day, month and script."""

import datetime
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

DAY = 86400.0


def record(**figures: Any) -> None:
    """Records a program as the end of one does."""
    folder = Path(os.environ["JITSERVER_CACHE_DIR"]) / "stats"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / time.strftime("%Y-%m.jsonl", time.gmtime(figures["at"]))).open("a") as file:
        file.write(f"\n{json.dumps(figures)}")


def test_without_records_it_says_so(cli: Callable[..., Any]) -> None:
    done = cli("stats")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "nothing is recorded: no program that used jitserver has ended in this time\n"
    found = json.loads(cli("stats", "--json").stdout)
    assert (found["days"], found["scripts"], found["total"]["programs"]) == ([], [], 0)


def test_figures_are_added_up_by_day_and_by_script(cli: Callable[..., Any]) -> None:
    now = time.time()  # of this test, as the tests may run over midnight
    record(at=now, script="/a.py", saved=2.0, found=3, made=1, made_seconds=0.5)
    record(at=now, script="/b.py", saved=5.0, compilations_found=7, compiled=2, compiled_seconds=0.25)
    record(at=now - DAY, script="/a.py", saved=1.0, found=1, remade=1, remade_seconds=1.5)
    record(at=now - 40 * DAY, script="/old.py", saved=1.0)
    found = json.loads(cli("stats", "--json").stdout)
    days = [datetime.date.fromtimestamp(moment).isoformat() for moment in (now - DAY, now)]
    assert [(row["day"], row["programs"], row["saved"]) for row in found["days"]] == [
        (days[0], 1, 1.0),
        (days[1], 2, 7.0),
    ]
    assert [(row["script"], row["programs"], row["saved"]) for row in found["scripts"]] == [
        ("/b.py", 1, 5.0),
        ("/a.py", 2, 3.0),
    ]
    assert found["total"] == {
        "programs": 3,
        "saved": 8.0,
        "found": 4,
        "made": 1,
        "made_seconds": 0.5,
        "remade": 1,
        "remade_seconds": 1.5,
        "compilations_found": 7,
        "compiled": 2,
        "compiled_seconds": 0.25,
    }
    assert found["incomplete_months"] == []
    [day] = json.loads(cli("stats", "--days", "1", "--json").stdout)["days"]
    assert day["day"] == days[1]
    assert len(json.loads(cli("stats", "--days", "41", "--json").stdout)["days"]) == 3


def test_a_table_shows_the_price_of_misses(cli: Callable[..., Any]) -> None:
    now = time.time()  # of this test, as the tests may run over midnight
    record(at=now, script="/a.py", saved=2.0, found=3, made=1, made_seconds=0.5)
    record(at=now, script="/é[bold].py", saved=-1.0)
    rows = [line.split() for line in cli("stats").stdout.splitlines() if line.strip()]
    today = datetime.date.fromtimestamp(now).isoformat()
    figures = ["3", "1", "(500", "ms)", "0", "0", "0"]
    assert [today, "2", "1.0", "s", *figures] in rows
    assert ["total", "2", "1.0", "s", *figures] in rows
    assert ["/a.py", "1", "2.0", "s", *figures] in rows
    assert ["/é[bold].py", "1", "0", "ms", "0", "0", "0", "0", "0"] in rows


def test_months_are_added_up(cli: Callable[..., Any]) -> None:
    for at in (1795651200.0, 1795651200.0 + DAY, 1795651200.0 + 30 * DAY):
        record(at=at, script="/a.py", saved=1.0)
    months = json.loads(cli("stats", "--month", "--json").stdout)["months"]
    assert [(row["month"], row["programs"]) for row in months] == [("2026-11", 2), ("2026-12", 1)]
    assert "2026-11" in cli("stats", "--month").stdout


@pytest.mark.parametrize(
    ("zone", "days"), [("UTC", ["2026-10-24", "2026-10-25"]), ("Europe/Berlin", ["2026-10-25", "2026-10-26"])]
)
def test_days_are_those_of_the_place_whatever_the_season(zone: str, days: list[str], cli: Callable[..., Any]) -> None:
    # Summer time ends in between: the first is half past one at night, the second half past midnight.
    for at in ("2026-10-24T23:30+00:00", "2026-10-25T23:30+00:00"):
        record(at=datetime.datetime.fromisoformat(at).timestamp(), script="/a.py")
    found = json.loads(cli("stats", "--days", "100000", "--json", env={"TZ": zone}).stdout)["days"]
    assert [row["day"] for row in found] == days


def test_many_days_are_all_days(cli: Callable[..., Any]) -> None:
    record(at=1.0, script="/a.py")
    done = cli("stats", "--days", str(10**9), "--json")
    assert [row["programs"] for row in json.loads(done.stdout)["days"]] == [1]


@pytest.mark.parametrize("words", [("--days", "0"), ("--days", "x"), ("--days", "3", "--month")])
def test_wrong_usage_has_status_2(words: tuple[str, ...], cli: Callable[..., Any]) -> None:
    assert cli("stats", *words).returncode == 2


def test_figures_are_those_of_this_machine_whatever_the_address(cli: Callable[..., Any]) -> None:
    now = time.time()  # of this test, as the tests may run over midnight
    record(at=now, script="/a.py", saved=1.0)
    done = cli("stats", "--json", env={"JITSERVER_ADDRESS": "ssh://user@nowhere.invalid/env"})
    assert json.loads(done.stdout)["total"]["programs"] == 1
