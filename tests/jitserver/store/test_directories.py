"""Where the cache is, whose it is, and how a folder is kept small."""

import os
from pathlib import Path

import pytest

from jitclient.core import settings as settings_module
from jitclient.errors import SettingsError
from jitserver.store import directories


@pytest.fixture(autouse=True)
def _settings_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directories, "settings", settings_module.Settings.from_environment)


def test_the_folder_is_the_one_named_then_systemds_then_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JITSERVER_CACHE_DIR", str(tmp_path / "named"))
    monkeypatch.setenv("CACHE_DIRECTORY", str(tmp_path / "systemd"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    assert directories.environment_directory().parent == tmp_path / "named"
    monkeypatch.delenv("JITSERVER_CACHE_DIR")
    assert directories.environment_directory().parent == tmp_path / "systemd"
    monkeypatch.delenv("CACHE_DIRECTORY")
    assert directories.environment_directory().parent == tmp_path / "user" / "jitserver"


def test_only_the_user_can_enter_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JITSERVER_CACHE_DIR", str(tmp_path / "cache"))
    assert directories.existing_directories() == []
    part = directories.environment_directory()
    for path in (part, part.parent):
        assert path.stat().st_mode & 0o777 == 0o700
    assert directories.existing_directories() == [part]
    part.chmod(0o777)
    directories.environment_directory()
    assert part.stat().st_mode & 0o777 == 0o700


def test_a_link_in_its_place_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "cache").symlink_to(tmp_path / "elsewhere")
    monkeypatch.setenv("JITSERVER_CACHE_DIR", str(tmp_path / "cache"))
    with pytest.raises(SettingsError, match="is not a directory owned by this user"):
        directories.environment_directory()


def test_a_relative_folder_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JITSERVER_CACHE_DIR", "cache")
    with pytest.raises(SettingsError, match="JITSERVER_CACHE_DIR='cache': expected an absolute path"):
        directories.environment_directory()


def test_other_settings_of_the_process_have_another_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JITSERVER_CACHE_DIR", str(tmp_path))
    one = directories.environment_directory()
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=2")
    assert directories.environment_directory() != one


def test_a_folder_that_is_trimmed_loses_what_was_written_longest_ago(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / f"{number}").write_bytes(bytes(100))
        os.utime(tmp_path / f"{number}", (number, number))
    assert directories.trim(tmp_path, 500) == 0
    assert directories.trim(tmp_path, 250) == 300
    assert sorted(path.name for path in tmp_path.iterdir()) == ["3", "4"]
    assert directories.trim(tmp_path / "missing", 0) == 0
