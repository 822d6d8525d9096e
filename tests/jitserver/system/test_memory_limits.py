"""How much memory a process may use."""

import os
from pathlib import Path

import pytest

from jitclient.wire.address import Address
from jitserver.daemon.arrays.budget import limits
from jitserver.daemon.serve_options import Options
from jitserver.programs.devices.memories import HOST, Memory
from jitserver.system import memory_limits
from jitserver.system.memory_limits import memory_bytes, memory_kills

PHYSICAL = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@pytest.fixture(autouse=True)
def _stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control groups in a folder of the test."""
    monkeypatch.setattr(memory_limits, "GROUPS", tmp_path / "fs")
    monkeypatch.setattr(memory_limits, "GROUPS_OF_PROCESS", tmp_path / "cgroup")


def group(folder: Path, name: str, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text + "\n")


def test_without_groups_it_is_the_memory_of_the_machine() -> None:
    assert memory_bytes() == PHYSICAL


def test_the_tightest_group_above_decides(tmp_path: Path) -> None:
    (tmp_path / "cgroup").write_text("0::/user.slice/app.service\n")
    groups = tmp_path / "fs"
    group(groups / "user.slice" / "app.service", "memory.max", "max")
    group(groups / "user.slice", "memory.max", "2097152")
    group(groups, "memory.max", "4194304")
    group(groups / "other", "memory.max", "1")
    assert memory_bytes() == 2097152


def test_in_a_container_the_group_of_the_container_is_the_top(tmp_path: Path) -> None:
    (tmp_path / "cgroup").write_text("0::/kubepods/pod1\n")  # a path that is not visible inside
    group(tmp_path / "fs", "memory.max", "1048576")
    assert memory_bytes() == 1048576


def test_version_1_of_control_groups(tmp_path: Path) -> None:
    (tmp_path / "cgroup").write_text("5:cpu,cpuacct:/a\n4:memory:/docker/x\n0::/a\n")
    group(tmp_path / "fs" / "memory" / "docker" / "x", "memory.limit_in_bytes", "3145728")
    group(tmp_path / "fs" / "memory", "memory.limit_in_bytes", "9223372036854771712")
    assert memory_bytes() == 3145728


def test_a_limit_above_the_memory_of_the_machine_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "cgroup").write_text("0::/\n")
    group(tmp_path / "fs", "memory.max", str(PHYSICAL * 4))
    assert memory_bytes() == PHYSICAL


def test_every_budget_is_a_part_of_the_groups_limit(tmp_path: Path) -> None:
    (tmp_path / "cgroup").write_text("0::/\n")
    group(tmp_path / "fs", "memory.max", str(8 << 20))
    options = Options(Address.parse("unix:/a/socket"))
    assert (options.shared_bytes, options.program_bytes) == (2 << 20, 1 << 20)
    assert limits([Memory(HOST, "", None)]) == {HOST: 4 << 20}


def test_the_kernel_counts_its_kills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for text, kills in (("nr_free_pages 7\noom_kill 3\n", 3), ("nr_free_pages 7\n", 0), (None, 0)):
        events = tmp_path / f"vmstat-{kills}-{text is None}"
        if text is not None:
            events.write_text(text)
        monkeypatch.setattr(memory_limits, "MACHINE_EVENTS", events)
        assert memory_kills() == kills
