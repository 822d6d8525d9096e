"""The resources of the machine: disk, memory, and limits of processes."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jitclient.wire.address import Address
from jitclient.wire.introspection import Status
from jitserver.cli.checks import machine
from jitserver.cli.checks.finding import DaemonState, Finding
from jitserver.system import memory_limits

NOTHING = dict.fromkeys(Status.__struct_fields__, 0)
HERE = DaemonState(Address(Path("/nowhere/d.sock")))


@pytest.mark.parametrize(("free", "level"), [(50 << 20, "problem"), (500 << 20, "warning"), (5 << 30, "ok")])
def test_disk(free: int, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=free))
    assert [found.level for found in machine.disk(HERE)] == [level], "both folders are on one disk here"


def test_disk_counts_the_caches_of_all_environments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "cache_root", lambda: tmp_path)
    (tmp_path / "stats").mkdir()
    status = Status(**{**NOTHING, "max_disk_bytes": 1 << 30})
    for digit, caches in (("1", "1 environment take 3 MiB"), ("2", "2 environments take 6 MiB")):
        (tmp_path / (digit * 12)).mkdir()
        (tmp_path / (digit * 12) / "file").write_bytes(b"x" * (3 << 20))
        says = [found.says for found in machine.disk(DaemonState(HERE.address, status))]
        assert any(f"the caches of {caches} of 1.0 GiB" in each for each in says), says


def test_memory_maps_are_those_of_the_daemon_or_without_one_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    here = machine.memory_maps(HERE).says
    assert here.endswith("in use")
    with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) as process:
        assert machine.memory_maps(DaemonState(HERE.address, Status(**{**NOTHING, "pid": process.pid}))).says != here
    monkeypatch.setattr(machine, "_MIN_MAPS", 1 << 40)
    assert "max_map_count" in machine.memory_maps(HERE).do


def group(folder: Path, files: dict[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text + "\n")


def version_2(limit: str, used: int, droppable: int = 0, killed: int = 0) -> dict[str, str]:
    return {
        "memory.max": limit,
        "memory.current": str(used),
        "memory.stat": f"anon 1\ninactive_file {droppable}",
        "memory.events": f"oom 0\noom_kill {killed}",
    }


@pytest.fixture
def checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Finding]:
    """Checks the groups below `tmp_path`, for a process that is in the given ones."""
    monkeypatch.setattr(memory_limits, "GROUPS", tmp_path)

    def check(membership: str) -> Finding:
        (tmp_path / "cgroup").write_text(membership)
        state: Any = SimpleNamespace(process=tmp_path)
        return machine.control_group(state)

    return check


def test_the_tightest_limit_of_the_groups_is_shown(tmp_path: Path, checked: Callable[[str], Finding]) -> None:
    group(tmp_path / "user", version_2("1000", 700))
    group(tmp_path / "user" / "ours", version_2("max", 300))
    assert checked("0::/user/ours\n").says == "700 B of 1000 B in use"
    group(tmp_path / "user" / "ours", version_2("400", 350, droppable=100))
    assert checked("0::/user/ours\n").says == "250 B of 400 B in use"


def test_version_1_of_control_groups(tmp_path: Path, checked: Callable[[str], Finding]) -> None:
    files = {
        "memory.limit_in_bytes": "1000",
        "memory.usage_in_bytes": "900",
        "memory.stat": "cache 1\ntotal_inactive_file 400",
        "memory.oom_control": "oom_kill_disable 0\noom_kill 0",
    }
    group(tmp_path / "memory" / "ours", files)
    group(tmp_path / "memory", {**files, "memory.limit_in_bytes": str(0x7FFFFFFFFFFFF000)})
    membership = "9:cpuset:/x\n4:memory:/ours\n0::/\n"
    assert checked(membership).says == "500 B of 1000 B in use"
    (tmp_path / "memory" / "ours" / "memory.limit_in_bytes").write_text(str(0x7FFFFFFFFFFFF000))
    assert checked(membership).says == "no memory limit"


def test_a_group_that_is_not_visible_in_a_container_has_no_limit(checked: Callable[[str], Finding]) -> None:
    assert checked("0::/docker/somewhere\n").says == "no memory limit"


@pytest.mark.parametrize(("used", "killed", "level"), [(500, 0, "ok"), (999, 0, "warning"), (1, 3, "warning")])
def test_a_group_that_is_nearly_full_or_was_is_a_warning(
    used: int, killed: int, level: str, tmp_path: Path, checked: Callable[[str], Finding]
) -> None:
    group(tmp_path / "ours", version_2("1000", used, killed=killed))
    assert checked("0::/ours\n").level == level
