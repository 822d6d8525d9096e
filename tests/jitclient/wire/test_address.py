"""Addresses: what they may be, who may answer, and which environment has which."""

import contextlib
import os
import socket
import stat
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from jitclient.errors import DaemonSilent, DaemonUnavailable, SettingsError
from jitclient.wire import address
from jitclient.wire.address import (
    Address,
    default_addresses,
    environment_digest,
    private_directory,
    runtime_directory,
)


@pytest.mark.parametrize("text", ["", "unix:", "unix:/", "unix:relative", "/tmp/x", "http://x", "unix:/" + "x" * 98])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="address"):
        Address.parse(text)


@pytest.mark.parametrize("name_length", [1, 40])
def test_the_longest_path_that_is_an_address_can_be_served(short_path: Path, name_length: int) -> None:
    folder = short_path / ("x" * (98 - len(f"{short_path}//") - name_length))
    folder.mkdir()
    address = Address.parse(f"unix:{folder}/{'d' * name_length}")
    address.listen().close()
    assert address.path.is_socket()
    with pytest.raises(SettingsError, match="at most 98 bytes"):
        Address.parse(f"{address}d")


def test_tcp_is_refused_with_a_reason() -> None:
    with pytest.raises(SettingsError, match="Unix sockets only"):
        Address.parse("tcp://127.0.0.1:1")


def test_an_address_prints_as_it_is_written() -> None:
    assert str(Address.parse("unix:/run/x.sock")) == "unix:/run/x.sock"


def test_nobody_there(short_path: Path) -> None:
    with pytest.raises(DaemonUnavailable, match="no daemon answers"):
        Address(short_path / "x").connect()


@pytest.fixture
def crowded(short_path: Path) -> Iterator[tuple[Address, socket.socket]]:
    """A listener in front of which as many wait as there is room for."""
    waiting = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(short_path / "x"))
        listener.listen(0)
        with contextlib.suppress(BlockingIOError):
            while True:
                waiting.append(socket.socket(socket.AF_UNIX))
                waiting[-1].setblocking(False)
                waiting[-1].connect(str(short_path / "x"))
        yield Address(short_path / "x"), listener
    for sock in waiting:
        sock.close()


def test_a_daemon_that_takes_no_connection_is_there_all_the_same(crowded: tuple[Address, socket.socket]) -> None:
    where, _ = crowded
    with pytest.raises(DaemonSilent, match="has accepted no connection"):
        where.connect(timeout=0.05)


def test_a_crowd_in_front_of_us_is_waited_for(crowded: tuple[Address, socket.socket]) -> None:
    where, listener = crowded
    taken = threading.Timer(0.1, lambda: listener.accept()[0].close())
    taken.start()
    where.connect().close()
    taken.join()


def test_the_socket_is_its_owners_alone_and_replaces_one_that_was_left(short_path: Path) -> None:
    where = Address(short_path / "d.sock")
    where.listen().close()  # its file stays, as after a crash
    with where.listen() as sock:
        assert stat.S_IMODE(where.path.stat().st_mode) == 0o600
        where.connect().close()
        assert sorted(path.name for path in short_path.iterdir()) == ["d.sock"]
        sock.close()


def test_a_socket_of_another_user_is_not_trusted(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = Address(short_path / "d.sock")
    with where.listen():
        monkeypatch.setattr(address, "peer", lambda sock: address.Peer(1, os.getuid() + 1))
        with pytest.raises(DaemonUnavailable, match="another user"):
            where.connect()


def test_peer_is_who_listens(short_path: Path) -> None:
    where = Address(short_path / "d.sock")
    with where.listen(), where.connect() as sock:
        assert address.peer(sock) == address.Peer(os.getpid(), os.getuid())


def test_each_environment_has_its_own_daemon() -> None:
    plain = environment_digest({}, "/a")
    assert plain == environment_digest({"HOME": "/x", "XLA_FLAGS": ""}, "/a")
    assert plain == environment_digest({"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}, "/a"), "so has every daemon"
    assert plain != environment_digest({"XLA_PYTHON_CLIENT_PREALLOCATE": "true"}, "/a")
    others = [
        environment_digest({}, "/b"),
        environment_digest({"XLA_FLAGS": "--xla_x"}, "/a"),
        environment_digest({"JAX_PLATFORMS": "cpu"}, "/a"),
        environment_digest({"CUDA_VISIBLE_DEVICES": "1"}, "/a"),
    ]
    assert len({plain, *others}) == 5


def test_the_order_of_looking() -> None:
    assert [str(where) for where in default_addresses("unix:/x")] == ["unix:/x"]
    user, system = default_addresses(None)
    assert os.environ["XDG_RUNTIME_DIR"] in str(user)
    assert str(system).startswith("unix:/run/jitserver/")


def test_a_user_without_a_name_has_no_daemon_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(uid: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr(address.pwd, "getpwuid", unknown)
    [user] = default_addresses(None)
    assert user == address.user_address()


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


def test_a_socket_type_that_is_not_ours_is_no_peer() -> None:
    one, other = socket.socketpair()
    with one, other:
        assert address.peer(one).uid == os.getuid()
