"""The doctor's check of the cache directory."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from jitclient.core import directories
from jitclient.wire.address import Address
from jitclient.wire.introspection import Status
from jitserver.cli.checks import cache
from jitserver.cli.checks.finding import DaemonState, Finding
from jitserver.run import verdict

HERE = DaemonState(Address(Path("/nowhere/d.sock")))
STATUS = Status(**{**dict.fromkeys(Status.__struct_fields__, 0), "max_disk_bytes": 1 << 30})


def levels(state: DaemonState = HERE) -> list[str]:
    return [found.level for found in cache.cache(state)]


@pytest.mark.parametrize(("free", "level"), [(50 << 20, "problem"), (500 << 20, "warning"), (5 << 30, "ok")])
def test_a_full_disk_is_found(free: int, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=free))
    monkeypatch.setattr(cache, "_file_system", lambda folder: "ext4")
    assert levels() == [level]


def test_a_cache_that_cannot_be_written_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(directories, "cache_root", lambda: tmp_path / "file")
    [found] = cache.cache(HERE)
    assert (found.level, "cannot be written" in found.says) == ("problem", True)
    assert "JITSERVER_CACHE_DIR" in found.do


def test_caches_of_environments_that_are_gone_are_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (cache, directories):
        monkeypatch.setattr(module, "cache_root", lambda: tmp_path / "cache")
    root = directories.environment_directory().parent
    monkeypatch.setattr(cache, "_file_system", lambda folder: "ext4")
    (root / "stats").mkdir()
    (root / ("1" * 12)).mkdir()
    (root / ("1" * 12) / "file").write_bytes(b"x" * (3 << 20))
    [found] = cache.cache(DaemonState(HERE.address, STATUS))
    assert "the caches of 2 environments take 3 MiB of 1.0 GiB" in found.says
    (root / ("1" * 12) / directories.ENVIRONMENT_FILE).write_text(str(tmp_path / "venv"))
    [_, found] = cache.cache(HERE)
    assert (found.level, found.do) == ("warning", "jitserver purge")


def test_a_cache_on_a_network_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path.resolve()
    monkeypatch.setattr(cache, "cache_root", lambda: home / "cache")
    monkeypatch.setattr(directories, "cache_root", lambda: home / "cache")
    monkeypatch.setattr(cache, "_MOUNTS", home / "mounts")
    for kinds, level in ((["ext4", "nfs4"], "warning"), (["nfs4", "ext4"], "ok")):
        rows = ["rootfs / overlay rw 0 0", *(f"server {home} {kind} rw 0 0" for kind in kinds)]
        (home / "mounts").write_text("\n".join(rows))
        assert levels()[-1] == level


def test_what_is_left_to_each_run_is_said_once_for_each_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directories, "cache_root", lambda: tmp_path / "cache")
    assert cache.imports(HERE).says == "no `jitserver run` has imported anything"
    unfit = {"sets.a": "sets.a changes the umask", "uses": "sets.a is left to the runs", "sets.b": "sets.b prints"}
    verdict.write("abc", verdict.Verdict(fit=["numpy", "numpy.random", "jax", "sets.c"], unfit=unfit))
    expected = "2 packages imported in advance for `jitserver run`\nleft to each run: sets.a changes the umask"
    assert cache.imports(HERE) == Finding("imports", "ok", expected)
