"""Calls of a daemon on another machine, over ssh."""

import contextlib
import json
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.experimental import io_callback

import jitclient
from jitclient.core import events
from jitclient.core.settings import Settings
from jitclient.errors import DaemonHangs, HostUnreachable, Incompatible
from jitclient.session import handshake, process
from jitclient.session.session import Session
from jitclient.wire import ssh
from jitclient.wire.ssh import SshSocket

MIB = 1 << 20

PROGRAM = """
import json, os, sys
import numpy as np
import jitclient

@jitclient.jit
def step(x):
    return x * 2 + 1

print(step(np.arange(3, dtype=np.float32)).tolist())
"""


@pytest.fixture
def here(host: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """Makes this process a client of that machine."""
    with client_of(host, monkeypatch) as session:
        yield session


@contextlib.contextmanager
def client_of(host: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    before = process.current
    for name, value in host.env.items():
        monkeypatch.setenv(name, value)
    session = jitclient.connect(host.address)
    try:
        yield session
    finally:
        session.close()
        process.current = before


@jitclient.jit
def add(x: Any, y: Any) -> Any:
    return x + y


def noise(nbytes: int) -> Any:
    return np.random.default_rng(7).integers(0, 256, nbytes, np.uint8)


@contextlib.contextmanager
def cut_while(host: Any, monkeypatch: pytest.MonkeyPatch, doing: str, least: int = 0) -> Iterator[None]:
    """Breaks the connection in the middle of the next call of a method of the socket with that many bytes."""
    method, before, opened = getattr(SshSocket, doing), [True], host.opened

    def broken(self: SshSocket, data: Any, *more: Any) -> Any:
        whole = b"".join(data) if doing == "sendmsg" else memoryview(data)
        if not before or len(whole) <= least:
            return method(self, data, *more)
        before.pop()
        if doing == "recv_into":
            method(self, whole[: len(whole) // 2])
        else:
            socket.socket.sendall(self, whole[: len(whole) // 2])
        host.cut()
        return method(self, data, *more)

    with monkeypatch.context() as patch:
        patch.setattr(SshSocket, doing, broken)
        yield
    assert not before, "nothing broke"
    assert host.opened > opened


def test_a_second_client_compiles_nothing(
    host: Any, run_there: Callable[..., Any], counts: Callable[..., dict[str, Any]]
) -> None:
    for _ in range(2):
        assert run_there(PROGRAM).stdout == "[1.0, 3.0, 5.0]\n"
    found = counts(host.socket)
    assert (found["traces"], found["compiles"], found["client_traces"], found["local_runs"]) == (1, 1, 0, 0)


def test_the_example_with_another_machine(
    host: Any, run_there: Callable[..., Any], counts: Callable[..., dict[str, Any]]
) -> None:
    example = (Path(__file__).parents[3] / "examples" / "remote_worker.py").read_text()
    first, before = run_there(example).stdout, counts(host.socket)
    assert re.search(r"^final loss 0\.\d+$", first, re.MULTILINE)
    assert run_there(example).stdout == first
    after = counts(host.socket)
    assert [after[name] - before[name] for name in ("traces", "compiles", "client_traces", "calls")] == [0, 0, 0, 500]


def test_two_clients_at_once(here: Session, run_there: Callable[..., Any]) -> None:
    x = jitclient.device_put(np.float32(1))
    other = threading.Thread(target=lambda: said.append(run_there(PROGRAM).stdout))
    said: list[str] = []
    other.start()
    for _ in range(100):
        x = add(x, np.float32(1))
    other.join()
    assert float(x) == 101
    assert said == ["[1.0, 3.0, 5.0]\n"]


@pytest.mark.parametrize("nbytes", [1, 65_537, 5 * MIB - 7, 32 * MIB])
def test_arrays_there_and_back(here: Session, nbytes: int) -> None:
    x = noise(nbytes)
    assert np.array_equal(np.asarray(jitclient.device_put(x)), x)
    assert np.array_equal(np.asarray(jitclient.jit(add.__wrapped__)(x, np.uint8(1))), x + np.uint8(1))


def test_arrays_over_small_buffers(host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh, "_BUFFER_BYTES", 4096)
    with client_of(host, monkeypatch) as session:
        x = noise(4 * MIB)
        assert np.array_equal(np.asarray(add(jitclient.device_put(x), np.uint8(1))), x + np.uint8(1))
        assert session.connection is not None


def test_many_arrays_at_once(here: Session) -> None:
    sizes = (1, 100_000, 3 * MIB, 65_536, 65_537) * 8
    given = [noise(size) + np.uint8(number) for number, size in enumerate(sizes)]
    for sent, fetched in zip(given, jitclient.device_get(jitclient.device_put(given)), strict=True):
        assert np.array_equal(sent, fetched)


def test_queued_calls_with_large_arguments(here: Session) -> None:
    parts = [noise(2 * MIB) + np.uint8(number) for number in range(16)]
    total = jitclient.device_put(np.zeros(2 * MIB, np.uint8))
    for part in parts:
        total = add(total, part)
    assert np.array_equal(np.asarray(total), sum(parts, np.zeros(2 * MIB, np.uint8)))


def test_donated_arrays_and_errors(here: Session) -> None:
    x = jitclient.device_put(np.ones(4 * MIB, np.float32))
    y = jitclient.jit(lambda x: x + 1, donate_argnums=0)(x)
    assert x.is_deleted()
    assert np.asarray(y)[-1] == 2
    with pytest.raises(RuntimeError):
        np.asarray(x)
    with pytest.raises(TypeError):
        add(np.zeros(3), np.zeros(4))
    assert float(add(np.float32(7), np.float32(0))) == 7


def test_no_memory_is_shared(host: Any, here: Session, counts: Callable[..., dict[str, Any]]) -> None:
    np.asarray(add(noise(4 * MIB), np.uint8(1)))
    assert here._pipeline.blocks is None
    status = counts(host.socket)
    assert (status["shared_bytes"], status["lent_bytes"]) == (0, 0)
    reached = handshake.reach(Settings(address=host.address))
    assert not reached.welcome.lends
    with contextlib.closing(reached.connection), pytest.raises(jitclient.DaemonLost):
        reached.connection.lease(MIB)  # a client that asks all the same is cut off


def test_its_people_see_who_is_connected(host: Any, here: Session, cli: Callable[..., Any]) -> None:
    x = jitclient.device_put(np.float32(1))
    shown = cli("status", "--calls", env={"JITSERVER_ADDRESS": host.socket, "COLUMNS": "300"}).stdout
    assert Path(sys.orig_argv[0]).name in shown
    held = cli("arrays", "ls", env={"JITSERVER_ADDRESS": host.socket}).stdout
    assert f"(pid {os.getpid()} on {socket.gethostname()})" in held
    del x


def test_its_people_see_whose_call_takes_long(
    host: Any, here: Session, cli: Callable[..., Any], until: Callable[..., Any]
) -> None:
    env = {"JITSERVER_ADDRESS": host.socket, "COLUMNS": "300"}
    shown = list[str]()

    def look(x: Any) -> Any:
        def long_calls() -> Any:
            return json.loads(cli("status", "--calls", "--json", env=env).stdout)["activity"]["running"]

        until(long_calls, "the call to take long")
        shown.append(cli("status", "--calls", env=env).stdout)
        return x

    @jitclient.jit
    def outer(x: Any) -> Any:
        return jax.pure_callback(look, jax.ShapeDtypeStruct((), np.float32), x)

    assert float(outer(np.float32(1))) == 1
    assert re.search(rf"outer.*\(pid {os.getpid()} on {re.escape(socket.gethostname())}\) +waits", shown[0])


# ---- links that break


def test_a_link_that_breaks_between_calls(host: Any, here: Session) -> None:
    x, generation = jitclient.device_put(np.float32(41)), here.generation
    host.cut()
    assert float(add(x, np.float32(1))) == 42
    assert here.generation == generation, "a new session replaced the first"


def test_a_link_that_breaks_during_a_call(host: Any, here: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    x, generation = jitclient.device_put(np.float32(41)), here.generation
    y = add(x, np.float32(1))
    float(y)
    with cut_while(host, monkeypatch, "sendall"):
        assert float(add(x, np.float32(1))) == 42
    assert float(x) == 41
    assert here.generation == generation, "a new session replaced the first"


def test_a_link_that_breaks_while_an_array_is_sent(host: Any, here: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    x, kept, generation = noise(8 * MIB), jitclient.device_put(noise(100)), here.generation
    for use in (lambda: jitclient.device_put(x), lambda: add(x, np.uint8(0))):
        with cut_while(host, monkeypatch, "sendmsg", MIB):
            assert np.array_equal(np.asarray(use()), x)
    assert np.array_equal(np.asarray(kept), noise(100))
    assert here.generation == generation, "a new session replaced the first"


def test_a_link_that_breaks_while_an_array_is_read(host: Any, here: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    x, generation = noise(8 * MIB), here.generation
    y = add(jitclient.device_put(x), np.uint8(1))
    with cut_while(host, monkeypatch, "recv_into", MIB):
        assert np.array_equal(np.asarray(y), x + np.uint8(1))
    assert here.generation == generation, "a new session replaced the first"


def test_a_queue_in_which_the_link_breaks_is_run_once(
    host: Any, here: Session, counts: Callable[..., dict[str, Any]]
) -> None:
    x = add(jitclient.device_put(np.float32(0)), np.float32(0))
    float(x)
    before = counts(host.socket)["calls"]
    for number in range(100):
        x = add(x, np.float32(1))
        if number in (30, 60, 61):
            host.cut()
    assert float(x) == 100
    assert counts(host.socket)["calls"] == before + 100


DOWN = """
echo 'connect to host port 22: Network is unreachable' >&2
echo >> {folder}/tried
[ $(wc -l < {folder}/tried) -lt 3 ] || mv {up} {folder}/bin/ssh
exit 255
"""
"""An `ssh` that fails three times, and is what was there before from then on."""


def test_a_link_that_is_down_for_a_while(
    new_host: Any,
    new_daemon: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    with new_host() as far, new_daemon(far.socket), client_of(far, monkeypatch):
        x = jitclient.device_put(np.float32(41))
        far.script("bin/ssh", DOWN.format(folder=far.folder, up=(far.folder / "bin/ssh").rename(far.folder / "bin/up")))
        far.cut()
        assert float(add(x, np.float32(1))) == 42
    assert capfd.readouterr().err.count("Network is unreachable; retrying for 60 s") == 1


def test_the_session_of_a_client_whose_link_broke_waits_for_it(
    new_host: Any,
    new_daemon: Callable[..., Any],
    until: Callable[..., Any],
    counts: Callable[..., dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with new_host() as far, new_daemon(far.socket), client_of(far, monkeypatch):
        x = jitclient.device_put(np.float32(41))
        for _, server in far._links:
            server.send_signal(signal.SIGKILL)  # and with it connect-stdio, the process that the daemon sees
        far.cut()
        assert counts(far.socket)["sessions"] == 1
        assert float(x) == 41


def test_a_daemon_there_that_hangs_is_given_up_and_asked_again_later(
    new_host: Any, new_daemon: Callable[..., Any], until: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = np.float32(1)
    with new_host() as far, new_daemon(far.socket) as daemon, client_of(far, monkeypatch) as session:
        ten, generation = jitclient.device_put(np.float32(10)), session.generation
        assert float(add(ten, one)) == 11
        session.connection._channel.stream.set_patience(0.3)  # type: ignore[union-attr]
        daemon.send_signal(signal.SIGSTOP)
        stat = Path(f"/proc/{daemon.pid}/stat")
        until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", "the daemon to hang")
        opened = far.opened
        try:
            for _ in range(3):
                with pytest.raises(jitclient.DaemonUnavailable, match="has sent nothing"):
                    add(one, one)
            assert far.opened == opened
            session._finder._retry_at = 0.0  # the while is over
            with pytest.raises(DaemonHangs, match="has sent nothing for 5 s"):
                add(one, one)
            assert far.opened == opened + 1
        finally:
            daemon.send_signal(signal.SIGCONT)
        session._finder._retry_at = 0.0
        session._finder._patience = 60.0  # a second may be too short on a busy machine
        assert float(add(ten, one)) == 11
        assert session.generation == generation, "a new session replaced the first"


def test_ctrl_c_does_not_end_the_link(host: Any, here: Session) -> None:
    float(add(np.float32(1), np.float32(1)))
    opened = host.opened
    here.connection._channel.stream.sock._process.send_signal(signal.SIGINT)  # type: ignore[union-attr]
    assert float(add(np.float32(1), np.float32(1))) == 2
    assert host.opened == opened


def test_a_client_that_ends_leaves_nothing(
    new_host: Any,
    new_daemon: Callable[..., Any],
    until: Callable[..., Any],
    counts: Callable[..., dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with new_host() as far, new_daemon(far.socket):
        with client_of(far, monkeypatch) as session:
            ssh = session.connection._channel.stream.sock._process  # type: ignore[union-attr]
            assert ssh.poll() is None
        assert ssh.returncode is not None
        until(lambda: counts(far.socket)["sessions"] == 0, "the session to end")
        for _, server in far._links:
            server.wait(30)


def test_a_forked_child_has_a_link_of_its_own(host: Any, run_there: Callable[..., Any]) -> None:
    done = run_there(
        PROGRAM
        + """
x = jitclient.device_put(np.float32(41))
float(x)
child = os.fork()
if not child:
    assert float(x) == 41
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
print(float(x))
"""
    )
    assert done.stdout.endswith("41.0\n"), done.stderr


# ---- callbacks


def test_a_callback_that_calls_jitted_functions(
    host: Any, here: Session, counts: Callable[..., dict[str, Any]]
) -> None:
    ten, generation = jitclient.device_put(np.float32(10)), here.generation
    seen = list[float]()

    def more(x: Any) -> Any:
        seen.append(float(add(ten, x)))  # handles of the same session, over a connection for all callbacks
        return np.asarray(add(x, np.float32(1)))

    @jitclient.jit
    def outer(x: Any) -> Any:
        return jax.pure_callback(more, jax.ShapeDtypeStruct((), np.float32), x) * 2

    opened, before = host.opened, counts(host.socket)
    assert [float(outer(np.float32(number))) for number in range(2)] == [2, 4]
    assert seen == [10, 11]
    assert float(ten) == 10
    assert here.generation == generation
    assert host.opened == opened + 1
    after = counts(host.socket)
    for counter in ("client_traces", "local_runs"):
        assert after[counter] == before[counter], "earlier tests may have had some"


@pytest.mark.parametrize("is_pure", [True, False])
def test_a_link_that_breaks_in_a_callback(is_pure: bool, host: Any, here: Session) -> None:
    ten, generation = jitclient.device_put(np.float32(10)), here.generation
    seen = list[float]()
    ssh = here.connection._channel.stream.sock._process  # type: ignore[union-attr]

    def cut(x: Any) -> Any:
        if not seen:
            host.cut()
            ssh.wait(30)
        seen.append(float(x))
        return x

    @jitclient.jit
    def outer(x: Any) -> Any:
        like = jax.ShapeDtypeStruct((), np.float32)
        return (jax.pure_callback(cut, like, x) if is_pure else io_callback(cut, like, x)) + 1

    if is_pure:
        assert float(outer(np.float32(41))) == 42
        assert seen == [41, 41]
    else:  # it has happened, and must not happen again
        with pytest.raises(jitclient.DaemonLost):
            float(outer(np.float32(41)))
        assert seen == [41]
    assert float(add(ten, np.float32(1))) == 11
    assert here.generation == generation, "a new session replaced the first"


# ---- what is refused, and why


def refused(host: Any, error: type[Exception], monkeypatch: pytest.MonkeyPatch, address: str = "") -> str:
    for name, value in host.env.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(error) as caught:
        jitclient.connect(address or host.address)
    assert type(caught.value) is error
    return str(caught.value)


def test_a_key_that_is_not_known_there(new_host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with new_host() as far:
        (far.folder / "authorized_keys").write_text("")
        said = refused(far, jitclient.DaemonUnavailable, monkeypatch)
    assert "Permission denied (publickey" in said
    assert "ssh-copy-id" in said
    assert re.search(r"`ssh -p \d+ \w+@127\.0\.0\.1 \S+/environment/bin/jitserver --version`", said)


def test_another_machine_than_the_known_one(new_host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with new_host() as far:
        far.know((far.folder / "user.pub").read_text())
        said = refused(far, jitclient.DaemonUnavailable, monkeypatch)
    assert "Host key verification failed" in said
    assert "compare the fingerprint" in said


def test_a_machine_that_does_not_answer(new_host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with new_host() as far:
        far.stop_listening()
        assert "Connection refused" in refused(far, HostUnreachable, monkeypatch)


def test_a_name_that_is_none(new_host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with new_host() as far:
        said = refused(far, jitclient.DaemonUnavailable, monkeypatch, "ssh://no-such-host.invalid")
    assert "Could not resolve hostname no-such-host.invalid" in said


@pytest.mark.parametrize("script", ["", "echo 'Error: No such command '\"'connect-stdio'.\" >&2; exit 2"])
def test_no_jitserver_there_or_one_too_old(script: str, new_host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with new_host() as far:
        (far.folder / "environment/bin/jitserver").unlink()
        if script:
            far.script("environment/bin/jitserver", script)
        said = refused(far, jitclient.DaemonUnavailable, monkeypatch)
    assert "/environment/bin/jitserver" in said
    assert "install this machine's version of jitserver there" in said


def test_no_daemon_there(new_host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with new_host() as far:
        assert "jitserver start" in refused(far, jitclient.DaemonUnavailable, monkeypatch)  # JITSERVER_AUTOSTART=0
        assert not Path(far.socket.removeprefix("unix:")).exists()


def test_a_client_starts_the_daemon_there(
    new_host: Any, run_there: Callable[..., Any], cli: Callable[..., Any]
) -> None:
    with new_host() as far:
        done = run_there(PROGRAM, **far.env, JITSERVER_AUTOSTART="1")
        try:
            assert done.stdout == "[1.0, 3.0, 5.0]\n", done.stderr
            assert re.fullmatch(rf"jitserver: started a daemon \(pid \d+, {far.address}\)\n", done.stderr)
            assert run_there(PROGRAM, **far.env).stderr == ""
        finally:
            assert cli("stop", env={"JITSERVER_ADDRESS": far.socket}).returncode == 0


def test_shells_that_print_at_their_start(
    new_host: Any, new_daemon: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with new_host() as far, new_daemon(far.socket):
        text = (far.folder / "environment/bin/jitserver").read_text()
        far.script("environment/bin/jitserver", f"echo Welcome; seq 10000; echo hints >&2\n{text}")
        with client_of(far, monkeypatch):
            assert float(add(np.float32(1), np.float32(1))) == 2


def test_another_jax(host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import jax

    monkeypatch.setattr(jax, "__version__", "0.0.1")
    said = refused(host, Incompatible, monkeypatch)
    assert "jax is 0.0.1 here and" in said
    assert re.search(r"`ssh -p \d+ \S+ \S+/environment/bin/pip install jax==0.0.1`\.$", said)


def test_another_version_of_a_package_that_a_function_uses(
    new_host: Any, new_daemon: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    optax = pytest.importorskip("optax")
    there = tmp_path / "optax-0.0.1.dist-info"
    there.mkdir()
    (there / "METADATA").write_text("Metadata-Version: 2.1\nName: optax\nVersion: 0.0.1\n")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])

    @jitclient.jit
    def loss(x: Any) -> Any:
        return optax.l2_loss(x)

    with new_host() as far, new_daemon(far.socket, env={"PYTHONPATH": path}), client_of(far, monkeypatch):
        assert float(add(np.float32(1), np.float32(1))) == 2
        with pytest.raises(Incompatible, match=rf"optax is {re.escape(optax.__version__)} here and 0\.0\.1 there"):
            loss(np.float32(1))


# ---- without what only Linux has


def test_a_client_without_memfd_pidfd_and_credentials(host: Any, run_there: Callable[..., Any]) -> None:
    absent = """
import ctypes, fcntl, mmap, os, resource, select, signal, socket, subprocess, sys
import jax, numpy  # which look at the system they were built for
for module, names in {
    os: (
        "memfd_create", "pidfd_open", "MFD_CLOEXEC", "MFD_ALLOW_SEALING", "eventfd", "splice", "sched_getaffinity",
        "pipe2", "dup3", "getrandom", "posix_fallocate", "posix_fadvise", "copy_file_range", "fdatasync", "getxattr",
        "setxattr", "listxattr", "O_PATH", "P_PIDFD",
    ),
    socket: (
        "SO_PEERCRED", "SO_PASSCRED", "SO_PEERSEC", "SCM_CREDENTIALS", "MSG_CMSG_CLOEXEC", "MSG_NOSIGNAL",
        "SOCK_CLOEXEC", "SOCK_NONBLOCK", "TCP_KEEPIDLE", "TCP_USER_TIMEOUT", "AF_NETLINK", "AF_VSOCK",
    ),
    fcntl: (
        "F_ADD_SEALS", "F_GET_SEALS", "F_SEAL_SHRINK", "F_SEAL_GROW", "F_SEAL_SEAL", "F_SETPIPE_SZ", "F_GETPIPE_SZ",
        "F_OFD_SETLK",
    ),
    mmap: ("MAP_POPULATE", "MAP_NORESERVE", "MADV_HUGEPAGE"),
    resource: ("prlimit",),
    select: ("epoll",),
    signal: ("pidfd_send_signal", "SIGRTMIN", "SIGSTKFLT", "SIGPWR"),
}.items():
    for name in names:
        if hasattr(module, name):
            delattr(module, name)
sys.platform = "darwin"

def opens(event, arguments):
    if event == "open" and str(arguments[0]).startswith(("/proc/", "/sys/", "/dev/shm", "/run/")):
        raise FileNotFoundError(2, "No such file or directory", arguments[0])

sys.addaudithook(opens)
"""
    done = run_there(absent + PROGRAM + "x = numpy.ones(1 << 20, 'f4'); print(float(step(x)[-1]))")
    assert done.stdout == "[1.0, 3.0, 5.0]\n3.0\n", done.stderr
    done = run_there(absent + PROGRAM, JITSERVER_ADDRESS="", JITSERVER_AUTOSTART="1", JITSERVER_FALLBACK="local")
    assert done.stdout == "[1.0, 3.0, 5.0]\n", done.stderr
    assert "the daemon needs Linux: name another machine (JITSERVER_ADDRESS=ssh://" in done.stderr


# ---- links that are slow


def test_a_thousand_calls_over_a_slow_link(
    new_host: Any, new_daemon: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, counts: Callable[..., Any]
) -> None:
    with new_host(delay=0.02) as far, new_daemon(far.socket), client_of(far, monkeypatch):
        x = add(jitclient.device_put(np.float32(0)), np.float32(0))
        for _ in range(1000):
            x = add(x, np.float32(1))
        assert float(x) == 1000
        assert counts(far.socket)["calls"] == 1001
        assert np.array_equal(np.asarray(jitclient.device_put(noise(4 * MIB))), noise(4 * MIB))


def noted_trips(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    trips = list[str]()
    for doing in ("sendall", "sendmsg", "recv_into"):
        method = getattr(SshSocket, doing)

        def noted(self: SshSocket, *more: Any, doing: str = doing, method: Any = method) -> Any:
            done = method(self, *more)
            trips.append(doing)
            return done

        monkeypatch.setattr(SshSocket, doing, noted)
    return trips


def undisturbed(session: Session, trips: list[str], exchange: Callable[[], Any]) -> Any:
    """Return the result of the first exchange in which the daemon does not say that it is busy, which costs a trip."""
    said = list[str]()
    # Held, so that the background sends nothing.
    with session, events.log.observed_by(said.append):
        while True:
            trips.clear(), said.clear()
            found = exchange()
            if not said:
                return found


def test_a_hot_call_is_one_round_trip(host: Any, here: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(10):
        assert float(add(np.float32(number), np.float32(1))) == number + 1
    trips = noted_trips(monkeypatch)
    for number in range(20):
        called = undisturbed(here, trips, lambda number=number: float(add(np.float32(number), np.float32(1))))
        assert called == number + 1
        assert trips == ["sendall", "recv_into"]


def test_an_array_takes_few_calls_of_the_system_each_way(
    host: Any, here: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = noise(8 * MIB)
    assert np.array_equal(np.asarray(jitclient.device_put(x)), x)
    trips = noted_trips(monkeypatch)
    y = undisturbed(here, trips, lambda: np.asarray(jitclient.device_put(x)))
    put = ["sendmsg", "recv_into"]
    fetch = ["sendall", "recv_into", "recv_into"]  # the message with what came along, and the rest
    assert trips == put + fetch
    assert np.array_equal(y, x)


def test_a_connection_that_the_users_ssh_shares(
    new_host: Any, new_daemon: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with new_host() as far, new_daemon(far.socket):
        config = far.folder / "ssh_config"
        shared = f"    ControlMaster auto\n    ControlPath {far.folder}/master\n    ControlPersist 60\n"
        config.write_text(config.read_text() + shared)
        for _ in range(2):
            with client_of(far, monkeypatch):
                assert float(add(np.float32(1), np.float32(1))) == 2
        said = refused(far, jitclient.DaemonUnavailable, monkeypatch, f"{far.address}/none")
        assert "there is no" in said
        assert far.opened == 1
