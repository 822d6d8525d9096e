"""Addresses: what they may be, who may answer, and which environment has which."""

import contextlib
import os
import pwd
import socket
import stat
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from jitclient.core.directories import HOST_DEVICES_FLAG, cache_root, environment_digest
from jitclient.core.file_lock import open_lock, try_lock
from jitclient.errors import DaemonSilent, DaemonUnavailable, SettingsError, WrongUser
from jitclient.wire import address
from jitclient.wire.address import Address, default_addresses


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


@contextlib.contextmanager
def as_another_user() -> Iterator[int]:
    """Let this process be another user's, and return to root."""
    if os.getuid() != 0:
        pytest.skip("only root can be another user")
    os.setresuid(65534, 65534, 0)
    try:
        yield 65534
    finally:
        os.setresuid(0, 0, 0)


def test_a_socket_of_another_user_is_refused_with_its_user(open_path: Path) -> None:
    where = Address(open_path / "d.sock")
    open_path.chmod(0o777)
    with as_another_user() as other:
        listening = where.listen()
    with listening, pytest.raises(WrongUser, match=f"belongs to uid {other}; a daemon serves one user"):
        where.connect()


@pytest.mark.parametrize("shut", ["nothing", "socket", "folder"])
def test_a_socket_of_root_is_refused_to_others_with_its_user(open_path: Path, shut: str) -> None:
    where = Address(open_path / "d.sock")
    with where.listen():
        where.path.chmod(0o600 if shut == "socket" else 0o666)
        open_path.chmod(0o700 if shut == "folder" else 0o777)
        with as_another_user(), pytest.raises(WrongUser, match="belongs to uid 0; a daemon serves one user"):
            where.connect()


def test_a_socket_that_the_systems_systemd_opened_for_this_user_is_this_users(open_path: Path) -> None:
    where = Address(open_path / "d.sock")
    open_path.chmod(0o755)
    with where.listen():
        with contextlib.suppress(PermissionError):
            os.chown(where.path, 65534, -1)
        with as_another_user():
            where.connect().close()


def test_a_socket_of_this_user_that_denies_the_access_is_no_other_users(open_path: Path) -> None:
    open_path.chmod(0o777)
    with as_another_user():
        where = Address(open_path / "d.sock")
        with where.listen():
            where.path.chmod(0)
            with pytest.raises(DaemonUnavailable, match="Permission denied"):
                where.connect()


def test_peer_is_who_listens(short_path: Path) -> None:
    where = Address(short_path / "d.sock")
    with where.listen(), where.connect() as sock:
        assert address.peer(sock) == address.Peer(os.getpid(), os.getuid())


OF_DEVICES = (
    *("CUDA_DEVICE_ORDER", "JAX_CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
    *("TPU_VISIBLE_CHIPS", "TPU_VISIBLE_DEVICES", "NVIDIA_TF32_OVERRIDE", "TF_GPU_ALLOCATOR"),
    *("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_ALLOCATOR"),
)


def test_each_environment_has_its_own_daemon() -> None:
    plain = environment_digest({}, "/a")
    assert plain == environment_digest({"HOME": "/x", "XLA_FLAGS": ""}, "/a")
    assert plain == environment_digest({"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}, "/a"), "so has every daemon"
    assert plain != environment_digest({"XLA_PYTHON_CLIENT_PREALLOCATE": "true"}, "/a")
    one, four = (f"{HOST_DEVICES_FLAG}={number}" for number in (1, 4))
    assert plain == environment_digest({"XLA_FLAGS": one}, "/a")
    assert plain == environment_digest({"XLA_FLAGS": f"{four} {one}", "JAX_NUM_CPU_DEVICES": "1"}, "/a"), "the last"
    assert environment_digest({"XLA_FLAGS": f"{one} --a"}, "/a") == environment_digest({"XLA_FLAGS": "--a"}, "/a")
    assert len({environment_digest({"XLA_FLAGS": flags}, "/a") for flags in (f"{four} --a", f"--a {four}")}) == 1
    others = [
        environment_digest({}, "/b"),
        environment_digest({"XLA_FLAGS": "--xla_x"}, "/a"),
        environment_digest({"XLA_FLAGS": four}, "/a"),
        environment_digest({"XLA_FLAGS": f"{one} {four}"}, "/b"),
        environment_digest({"XLA_FLAGS": four, "JAX_NUM_CPU_DEVICES": "1"}, "/a"),
        environment_digest({"JAX_PLATFORMS": "cpu"}, "/a"),
        environment_digest({"CUDA_VISIBLE_DEVICES": "1"}, "/a"),
        *[environment_digest({name: "1"}, "/a") for name in OF_DEVICES],
    ]
    assert len({plain, *others}) == 8 + len(OF_DEVICES)


def test_a_socket_that_a_daemon_left_is_removed_unless_another_is_about_to_listen(short_path: Path) -> None:
    where = Address(short_path / "d.sock")
    where.listen().close()
    with open_lock(where.lock_path) as lock:
        assert try_lock(lock)
        with pytest.raises(DaemonUnavailable):
            where.connect()
        assert where.path.is_socket()
    with pytest.raises(DaemonUnavailable) as refused:
        where.connect()
    assert not where.path.exists()
    assert str(refused.value) == f"no daemon answers at {where}"


def test_the_order_of_looking() -> None:
    assert [str(where) for where in default_addresses("unix:/x")] == ["unix:/x"]
    user, system = default_addresses(None)
    assert os.environ["XDG_RUNTIME_DIR"] in str(user)
    assert str(system).startswith("unix:/run/jitserver/")


def test_a_running_daemon_is_found_from_any_runtime_directory(
    short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = address.user_address()
    where = Address(short_path / own.path.name)
    with where.listen(), address.note_running(where):
        [found] = address.running_daemons()
        assert (found.address, found.pid, found.environment) == (where, os.getpid(), sys.prefix)
        notes = cache_root() / "daemons"
        (notes / "abc").symlink_to(next(notes.iterdir()))
        (notes / "fed").mkdir()
        assert address.user_address() == where
        with contextlib.closing(own.listen()), open_lock(own.lock_path) as lock:
            assert address.user_address() == where, "the socket of a daemon that was killed"
            assert try_lock(lock)
            assert address.user_address() == own
        own.path.unlink()
        with monkeypatch.context() as patch:
            patch.setenv("XLA_FLAGS", "--xla_a=b")
            assert address.user_address() == Address(own.path.with_name(f"{environment_digest()}.sock"))
    assert address.running_daemons() == []
    assert address.user_address() == own


def test_a_daemon_that_has_lost_its_socket_is_not_found(short_path: Path) -> None:
    with address.note_running(Address(short_path / address.user_address().path.name)):
        assert address.running_daemons() == []


def test_a_user_without_a_name_has_no_daemon_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(uid: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    [user] = default_addresses(None)
    assert user == address.user_address()


def test_a_socket_type_that_is_not_ours_is_no_peer() -> None:
    one, other = socket.socketpair()
    with one, other:
        assert address.peer(one).uid == os.getuid()
