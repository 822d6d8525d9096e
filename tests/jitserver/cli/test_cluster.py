"""`jitserver cluster`: what it prints of daemons, and its exit status. Others test it on machines and on Ray."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from jitclient.errors import HostUnreachable, JitserverError
from jitserver.cli import cluster


class Host:
    """A host whose daemon runs, does not run, or cannot be reached."""

    def __init__(self, name: str, found: dict[str, Any] | JitserverError) -> None:
        self.name, self._found = name, found

    def start(self) -> None:
        self.status()

    def status(self) -> dict[str, Any]:
        if isinstance(self._found, JitserverError):
            raise self._found
        return self._found

    def stop(self) -> None:
        self.status()


RUNS = {
    "running": True,
    "pid": 7,
    "uptime_s": 60.0,
    "devices": ["cpu:0 cpu"],
    "entries": 3,
    "compiles": 2,
    "arrays": 1,
    "array_bytes": 2048,
    "names": 1,
}
NONE = {"running": False, "error": "no daemon answers at unix:/x", "type": "DaemonUnavailable", "status": 3}


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> dict[str, Host]:
    made = {
        "a": Host("a", RUNS),
        "b": Host("b", NONE),
        "c": Host("c", HostUnreachable("ssh does not reach c: no route")),
    }
    monkeypatch.setattr(cluster, "daemons_of", lambda name: [made[name]])
    monkeypatch.setattr(cluster, "daemons_to_start", lambda name, options: [made[name]])
    return made


@pytest.mark.parametrize(
    ("names", "status"), [("a", 0), ("ab", 0), ("b", 3), ("ac", 1), ("bc", 1)], ids=lambda value: str(value)
)
def test_the_status_says_whether_daemons_run(
    hosts: dict[str, Host], here: Callable[..., Any], names: str, status: int
) -> None:
    done = here("cluster", "status", *names, "--json")
    assert done.exit_code == status
    rows = json.loads(done.output)
    assert [row["host"] for row in rows] == list(names)
    assert [row["running"] for row in rows] == [{"a": True, "b": False, "c": None}[name] for name in names]
    assert ["error" in row for row in rows] == [name == "c" for name in names]


def test_it_is_a_table_and_a_line_for_each_that_does_not_run(hosts: dict[str, Host], here: Callable[..., Any]) -> None:
    text = here("cluster", "status", "a", "b", "c").output
    assert "pid 7" in text
    assert "3 programs, 2 compiles" in text
    assert "b: no daemon is running\nc: ssh does not reach c: no route\n" in text


def test_one_that_fails_keeps_no_other_from_its_start_or_end(hosts: dict[str, Host], here: Callable[..., Any]) -> None:
    up = here("cluster", "up", "c", "a", "--json")
    assert up.exit_code == 1
    assert [(row["host"], row["running"]) for row in json.loads(up.output)] == [("c", None), ("c", None), ("a", True)]
    down = here("cluster", "down", "c", "a")
    assert (down.exit_code, down.output) == (1, "c: ssh does not reach c: no route\na: ended\n")


@pytest.mark.parametrize("address", ["slurm", "local:2", "tcp://a", "nonsense"])
def test_an_address_without_such_a_daemon_is_refused(here: Callable[..., Any], address: str) -> None:
    done = here("cluster", "status", address, "--json")
    assert done.exit_code == 1
    assert json.loads(done.output)["type"] == "SettingsError"
    assert "expected local, ssh://" in done.output
