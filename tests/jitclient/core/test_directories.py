"""Where the cache and the sockets are, whose they are, and how a folder is kept small."""

import os
import stat
import tempfile
from pathlib import Path

import platformdirs
import pytest

from jitclient.core import directories
from jitclient.core import settings as settings_module
from jitclient.core.directories import private_directory, runtime_directory
from jitclient.errors import SettingsError


@pytest.fixture(autouse=True)
def _settings_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings_module, "settings", settings_module.Settings.from_environment)


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


@pytest.fixture
def own_temporary(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in the place of /tmp and of the home, without a runtime folder of the session."""
    monkeypatch.setattr(tempfile, "tempdir", str(short_path))
    monkeypatch.setenv("HOME", str(short_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_path / "none"))
    return short_path


def test_without_a_folder_of_the_session_sockets_are_in_the_temporary_one(own_temporary: Path) -> None:
    assert runtime_directory() == own_temporary / f"jitserver-{os.getuid()}"


@pytest.mark.parametrize("what", ["link", "file"])
def test_where_another_user_was_quicker_there_is_another_folder_and_a_warning(own_temporary: Path, what: str) -> None:
    taken = own_temporary / f"jitserver-{os.getuid()}"
    if what == "link":
        taken.symlink_to(own_temporary)  # which is not for them to make
    else:
        taken.touch()
    with pytest.warns(RuntimeWarning, match=f"because .*{taken}"):
        assert runtime_directory() == own_temporary / ".cache/jitserver/run"
    (own_temporary / ".cache/jitserver/run").rmdir()
    (own_temporary / ".cache/jitserver/run").touch()
    with pytest.raises(OSError, match=f"{taken}.*; .*run"):
        runtime_directory()


def test_a_folder_of_another_users_session_is_left_alone(own_temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    others = Path("/") if os.getuid() else own_temporary / "others"
    if not os.getuid():
        others.mkdir()
        os.chown(others, 1234, 1234)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(others))
    assert runtime_directory() == own_temporary / f"jitserver-{os.getuid()}"
    assert not (others / "jitserver").exists()


def test_a_folder_whose_path_is_too_long_for_a_socket_is_not_used(
    own_temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = own_temporary / ("x" * 80)
    long.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(long))
    with pytest.warns(RuntimeWarning, match="too long for a socket"):
        assert runtime_directory() == own_temporary / f"jitserver-{os.getuid()}"


def test_that_another_folder_is_used_is_no_error(
    own_temporary: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    long = own_temporary / ("x" * 80)
    long.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(long))
    assert runtime_directory() == own_temporary / f"jitserver-{os.getuid()}"  # warnings are errors in tests
    assert "too long for a socket" in capsys.readouterr().err


def test_a_private_folder_is_private(short_path: Path) -> None:
    folder = short_path / "a" / "b"
    private_directory(folder)
    folder.chmod(0o755)
    private_directory(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_folder_that_is_a_link_is_refused(short_path: Path) -> None:
    (short_path / "link").symlink_to(short_path)
    with pytest.raises(SettingsError, match="is not a directory"):
        private_directory(short_path / "link")


@pytest.mark.parametrize("xdg", [None, "", "relative", "/xdg", "/xdg/"])
@pytest.mark.parametrize("home", ["/home/a", "/", "relative"])
def test_the_cache_is_where_platformdirs_has_it(home: str, xdg: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", home)
    monkeypatch.delenv("JITSERVER_CACHE_DIR")
    monkeypatch.delenv("XDG_CACHE_HOME")
    if xdg is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", xdg)
    assert directories.cache_root() == Path(platformdirs.user_cache_dir("jitserver", appauthor=False))
