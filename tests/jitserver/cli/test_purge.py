"""`jitserver purge` removes the files of environments that are gone, and nothing else."""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from jitclient.core import directories
from jitclient.core.settings import settings
from jitserver.cli import purge

GONE, HERE, UNKNOWN = "0" * 12, "1" * 12, "2" * 12


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """The caches, sockets and logs of a user with an environment, with one that is gone, and with an unknown one."""
    found = {name: tmp_path / name for name in ("cache", "sockets", "logs")}
    (tmp_path / "env" / "bin").mkdir(parents=True)
    for folder in found.values():
        folder.mkdir()
    for digest, environment in ((GONE, "gone"), (HERE, "env"), (UNKNOWN, "")):
        (found["cache"] / digest / "blobs").mkdir(parents=True)
        (found["cache"] / digest / "blobs" / "program").write_bytes(b"x" * 1000)
        if environment:
            (found["cache"] / digest / "environment").write_text(str(tmp_path / environment))
        (found["logs"] / f"{digest}-abcd.log").write_text("log")
        (found["sockets"] / f"{digest}.lock").write_text("1")
    monkeypatch.setenv("JITSERVER_CACHE_DIR", str(found["cache"]))
    monkeypatch.setattr(purge, "log_directory", lambda: found["logs"])
    monkeypatch.setattr(purge, "runtime_directory", lambda: found["sockets"])
    settings.cache_clear()
    return found


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.core
def test_an_environment_that_is_gone_leaves_nothing(folders: dict[str, Path], here: Callable[..., Result]) -> None:
    planned = json.loads(here("purge", "--dry-run", "--json").stdout)
    assert names(folders["cache"]) == {GONE, HERE, UNKNOWN}
    done = json.loads(here("purge", "--json").stdout)
    assert done == {**planned, "result": "removed"}
    (removed,) = done["removed"]
    assert removed["environment"] == str(folders["cache"].parent / "gone")
    assert removed["bytes"] > 1000
    assert names(folders["cache"]) == {HERE, UNKNOWN}
    assert names(folders["logs"]) == {f"{HERE}-abcd.log", f"{UNKNOWN}-abcd.log"}
    assert names(folders["sockets"]) == {f"{HERE}.lock", f"{UNKNOWN}.lock"}
    assert here("purge").stdout == "nothing to remove\n"


@pytest.mark.core
def test_all_leaves_nothing(folders: dict[str, Path], here: Callable[..., Result]) -> None:
    done = here("purge", "--all")
    assert done.exit_code == 0
    assert "removed: all environments, " in done.stdout
    assert not any(folder.exists() for folder in folders.values())


@pytest.mark.core
def test_a_running_daemon_keeps_its_files(
    folders: dict[str, Path], here: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(purge.Address, "is_held", lambda address: address.path.stem == GONE)
    assert here("purge").stdout == "nothing to remove\n"
    done = here("purge", "--all")
    assert done.exit_code == 1
    assert f"a daemon is running at unix:{folders['sockets']}/{GONE}.sock. Stop it first" in done.output
    assert names(folders["cache"]) == {GONE, HERE, UNKNOWN}


@pytest.mark.core
def test_what_cannot_be_removed_is_named_and_the_rest_goes(
    folders: dict[str, Path], here: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = folders["cache"] / GONE / "blobs" / "program"

    def unlink(path: Any, *, dir_fd: int | None = None) -> None:
        if Path(path).name == "program":
            raise PermissionError(errno.EPERM, "Operation not permitted", str(refused))
        real(path, dir_fd=dir_fd)

    refused.with_name("other").touch()
    real = os.unlink
    monkeypatch.setattr(os, "unlink", unlink)
    done = here("purge", "--json")
    assert done.exit_code == 1
    assert json.loads(done.stdout)["kept"] == [f"[Errno 1] Operation not permitted: '{refused}'"]
    assert refused.exists()
    assert not refused.with_name("other").exists()
    assert names(folders["logs"]) == {f"{HERE}-abcd.log", f"{UNKNOWN}-abcd.log"}
    assert f"these could not be removed:\n[Errno 1] Operation not permitted: '{refused}'" in here("purge").output


@pytest.mark.core
def test_a_cache_knows_its_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JITSERVER_CACHE_DIR", str(tmp_path))
    settings.cache_clear()
    found = directories.environment_directory()
    assert (directories.environment_of(found) / "bin").exists()  # type: ignore[operator]
    settings.cache_clear()


@pytest.mark.core
def test_a_refusal_of_the_system_is_an_error_and_no_traceback(
    here: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(root: Path) -> list[Path]:
        raise PermissionError(errno.EACCES, "Permission denied", str(root))

    monkeypatch.setattr(purge, "cache_directories", refuse)
    done = here("purge", "--json")
    assert done.exit_code == 1
    assert json.loads(done.stdout)["error"] == f"[Errno 13] Permission denied: '{directories.cache_root()}'"
