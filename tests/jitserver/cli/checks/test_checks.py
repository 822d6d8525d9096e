"""The checks together, and those about the daemon."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import pytest

from jitclient.errors import DaemonLost
from jitclient.wire.address import Address
from jitclient.wire.introspection import EntryInfo, Status
from jitserver.cli.checks import daemon
from jitserver.cli.checks.checks import CHECKS, findings_of
from jitserver.cli.checks.daemon import call
from jitserver.cli.checks.finding import DaemonState, Finding

HERE = DaemonState(Address(Path("/nowhere/d.sock")), reason="no daemon answers")


def running(**said: Any) -> DaemonState:
    status = Status(**{**dict.fromkeys(Status.__struct_fields__, 0), **said})
    address = Address.parse(said["address"]) if "address" in said else HERE.address
    return dataclasses.replace(HERE, address=address, status=status)


def test_a_check_that_fails_to_run_is_a_finding_and_the_next_one_runs() -> None:
    def broken_check(state: DaemonState) -> NoReturn:
        raise FileNotFoundError("/proc/x")

    def late_check(state: DaemonState) -> Any:
        yield Finding("late", "ok", "")
        raise DaemonLost("it went away")

    found = list(findings_of(HERE, [broken_check, late_check, daemon.answers]))
    assert [(one.check, one.level) for one in found] == [
        ("broken check", "warning"),
        ("late", "ok"),
        ("late check", "problem"),
        ("daemon", "warning"),
    ]


def test_every_warning_and_problem_says_what_to_do() -> None:
    assert len(set(CHECKS)) == len(CHECKS)
    assert all(found.do for found in findings_of(HERE) if found.level != "ok")


def test_a_daemon_that_does_not_answer_is_a_problem() -> None:
    assert daemon.answers(HERE).level == "warning"
    assert daemon.answers(dataclasses.replace(HERE, is_broken=True)).level == "problem"
    assert daemon.answers(running(pid=4711)).says.startswith("pid 4711 answers")


def test_an_unused_accelerator_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon, "_ACCELERATORS", {str(tmp_path / "gpu"): "a GPU"})
    on_cpu, on_gpu = running(devices=("cpu:0 cpu",)), running(devices=("cuda:0 H100",))
    assert [found.level for found in daemon.devices(on_cpu)] == ["ok"]
    (tmp_path / "gpu").touch()
    [found] = daemon.devices(on_cpu)
    assert (found.level, found.says) == ("warning", "cpu:0 cpu, although the machine has a GPU")
    assert [found.level for found in daemon.devices(on_gpu)] == ["ok"]
    assert list(daemon.devices(HERE)) == []


def test_programs_without_executables_are_a_warning_if_they_are_half_of_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reasons = ["", "no room", "callbacks", "no room", ""]

    def listed(prefix: str) -> list[EntryInfo]:
        entry = EntryInfo("key", "function key", "f", "", "f()", "f()", "none", {"jax": "1"}, {}, 0.0, 0, 0.0, 0.0, 0)
        return [msgspec.structs.replace(entry, no_executable=reason) for reason in reasons]

    monkeypatch.setattr(daemon, "listed", listed)
    [found] = daemon.executables(running(packages={}))
    says = "those of 2 of 5 programs are kept; 2 are not: no room; 1 are not: callbacks"
    assert (found.level, found.says) == ("warning", says)
    reasons = ["no room", *[""] * 2]
    [found] = daemon.executables(running(packages={}))
    assert (found.level, found.says) == ("ok", "those of 2 of 3 programs are kept; 1 are not: no room")
    reasons = [""]
    [found] = daemon.executables(running(packages={"jax": "1"}))
    assert (found.level, found.says) == ("ok", "those of 1 of 1 programs are kept")
    [found, other] = daemon.executables(running(packages={"jax": "2"}))
    assert (found.says, other.level) == ("those of 0 of 0 programs are kept", "ok")
    assert other.says.startswith("1 program of other versions of jax")
    assert list(daemon.executables(HERE)) == []


def test_a_failed_call_is_a_problem_with_its_error(short_path: Path) -> None:
    [found] = call(running(address=f"unix:{short_path}/d.sock"))
    assert found.level == "problem"
    assert "DaemonUnavailable" in found.says


@pytest.mark.slow
def test_a_call_that_succeeds_says_how_long_it_took(daemon: str, counts: Callable[..., dict[str, Any]]) -> None:
    before = counts()["calls"]
    [found] = call(running(address=daemon))
    assert found.level == "ok", found.says
    assert counts()["calls"] > before + 1
