"""What the machine gives: disk, memory, and the limits of a process."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from jitclient.wire.address import Address
from jitclient.wire.messages import Status
from jitserver.doctor import machine
from jitserver.doctor.finding import Scene

NOTHING = dict.fromkeys(Status.__struct_fields__, 0)
HERE = Scene(Address(Path("/nowhere/d.sock")))


@pytest.fixture
def short_of_files() -> Iterator[Scene]:
    """A process that may open few files, in the place of a daemon."""
    limit = "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256)); "
    wait = "print(flush=True); sys.stdin.read()"
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", limit + wait], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    yield Scene(HERE.address, Status(**{**NOTHING, "pid": process.pid}))
    process.communicate()


def test_limits_are_those_of_the_daemon_and_without_one_ours(short_of_files: Scene) -> None:
    found = machine.open_files(short_of_files)
    assert found.level == "warning"
    assert found.says.endswith("of 256 in use")
    assert "ulimit -n" in found.do
    assert "of 256 " not in machine.open_files(HERE).says
    assert machine.locked_memory(short_of_files).level == "ok"


@pytest.mark.parametrize(("free", "level"), [(50 << 20, "problem"), (500 << 20, "warning"), (5 << 30, "ok")])
def test_disk(free: int, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=free))
    assert [found.level for found in machine.disk(HERE)] == [level], "both folders are on one disk here"


def test_memory_maps_and_memory_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine.memory_maps(HERE).says.endswith("in use")
    assert "free" in machine.memory(HERE).says
    monkeypatch.setattr(machine, "_FEWEST_MAPS", 1 << 40)
    assert "max_map_count" in machine.memory_maps(HERE).do


def group(folder: Path, files: dict[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text + "\n")


def second(limit: str, used: int, droppable: int = 0, killed: int = 0) -> dict[str, str]:
    return {
        "memory.max": limit,
        "memory.current": str(used),
        "memory.stat": f"anon 1\ninactive_file {droppable}",
        "memory.events": f"oom 0\noom_kill {killed}",
    }


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(machine, "_GROUPS", tmp_path)
    return tmp_path


@pytest.fixture
def limited() -> Callable[[str], list[tuple[int, int, int]]]:
    return lambda membership: list(machine._limited_groups(membership))


def test_the_limits_of_all_groups_above_count(groups: Path, limited: Callable[..., object]) -> None:
    group(groups / "user", second("1000", 700))
    group(groups / "user" / "ours", second("max", 300))
    assert limited("0::/user/ours\n") == [(1000, 700, 0)]
    group(groups / "user" / "ours", second("400", 350, droppable=100, killed=2))
    assert limited("0::/user/ours\n") == [(400, 250, 2), (1000, 700, 0)]


def test_groups_of_the_first_version(groups: Path, limited: Callable[..., object]) -> None:
    files = {
        "memory.limit_in_bytes": "5000",
        "memory.usage_in_bytes": "4900",
        "memory.stat": "cache 1\ntotal_inactive_file 400",
        "memory.oom_control": "oom_kill_disable 0\noom_kill 1",
    }
    group(groups / "memory" / "ours", files)
    group(groups / "memory", {**files, "memory.limit_in_bytes": str(0x7FFFFFFFFFFFF000)})
    assert limited("9:cpuset:/x\n4:memory:/ours\n0::/\n") == [(5000, 4500, 1)]


def test_groups_that_a_container_does_not_see_have_no_limit(groups: Path, limited: Callable[..., object]) -> None:
    assert limited("0::/docker/somewhere\n") == []


@pytest.mark.parametrize(
    ("told", "level"),
    [((1 << 30, 1 << 29, 0), "ok"), ((1 << 30, (1 << 30) - 1, 0), "warning"), ((1 << 30, 1, 3), "warning")],
)
def test_a_group_that_is_nearly_full_or_was_is_told(
    told: tuple[int, int, int], level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "_limited_groups", lambda membership: iter([told, (1 << 40, 0, 0)]))
    found = machine.control_group(HERE)
    assert found.level == level
    assert "1.0 GiB" in found.says
