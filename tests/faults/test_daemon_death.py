"""Daemons that die, hang, or stop: a rerun where that is harmless, a typed error where not, never a hang."""

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jitclient
from jitclient import errors
from jitclient.session import process

SLOW = """
    import jax
    from jax.experimental import io_callback

    def wait(x):
        import pathlib, time
        print("waiting")
        while pathlib.Path("GATE").exists():
            time.sleep(0.01)
        return x

    @jitclient.jit
    def slow(x):
        return jax.pure_callback(wait, jax.ShapeDtypeStruct((), "float32"), x) + 1

    @jitclient.jit
    def slow_to_trace(x):
        WAITS
        return x + 1

    @jitclient.jit(donate_argnums=0)
    def donating(x):
        return jax.pure_callback(wait, jax.ShapeDtypeStruct((), "float32"), x) + 1

    @jitclient.jit
    def changing(x):
        return io_callback(wait, jax.ShapeDtypeStruct((), "float32"), x) + 1

    @jitclient.jit
    def changing_in_order(x):
        return io_callback(wait, jax.ShapeDtypeStruct((), "float32"), x, ordered=True) + 1

    @jitclient.jit
    def printing(x):
        y = jax.pure_callback(wait, jax.ShapeDtypeStruct((), "float32"), x) + 1
        jax.debug.print("once at most: {}", y)
        return y

    big = jitclient.device_put(np.zeros(1000, np.float32))
    print("ready")
    function = globals()[os.environ["FUNCTION"]]
"""
ONE_CALL = (
    SLOW
    + """
    try:
        print(float(function(np.float32(1))))
    except errors.JitserverError as error:
        print(type(error).__name__)
    try:
        np.asarray(big)
        print("still there")
    except errors.ArrayLost as error:
        assert "float32[1000]" in str(error) and "daemon" in str(error), error
        print("lost")
"""
)


class Scene:
    """A daemon, and a client whose call waits, in its callback, for a gate to open."""

    def __init__(
        self, daemon: Any, start_client: Any, until: Any, gate: Path, waits: str, function: str, **env: str
    ) -> None:
        gate.touch()
        self.gate = gate
        self.daemon = daemon
        traces = daemon.counts().traces
        source = ONE_CALL.replace("GATE", str(gate)).replace("WAITS", waits)
        self.client = start_client(daemon, source, FUNCTION=function, **env)
        self.client.says("ready")
        if function == "slow_to_trace":
            until(lambda: daemon.counts().traces > traces, "the trace to be under way")
        else:
            self.client.says("waiting")

    def kill(self) -> None:
        self.daemon.process.kill()
        self.daemon.process.wait()
        self.gate.unlink()


@pytest.fixture
def scene(start_client: Any, until: Any, tmp_path: Path, gate: Any) -> Any:
    def make(daemon: Any, function: str, **env: str) -> Scene:
        return Scene(daemon, start_client, until, tmp_path / "call", gate.waits, function, **env)

    return make


AGAIN = {"JITSERVER_AUTOSTART": "1"}


@pytest.mark.callbacks
@pytest.mark.parametrize(
    ("function", "env", "says", "notes"),
    [
        ("slow", {}, ["DaemonUnavailable", "lost"], ""),
        ("slow_to_trace", {}, ["DaemonUnavailable", "lost"], ""),
        ("slow", AGAIN, ["waiting", "2.0", "lost"], "started a daemon"),
        ("slow", {"JITSERVER_FALLBACK": "local"}, ["waiting", "2.0", "lost"], "RuntimeWarning"),
    ],
    ids=["no daemon to be had", "no daemon to be had for a trace", "a new daemon runs it again", "a local run"],
)
def test_kill_9_in_the_middle(
    serve: Any, scene: Any, function: str, env: dict[str, str], says: list[str], notes: str
) -> None:
    with serve() as daemon:
        made = scene(daemon, function, **env)
        made.kill()
        made.client.says(*says)
        errors = made.client.ends()
        assert not notes or errors.count(notes) == 1


@pytest.mark.parametrize("function", ["donating", "changing", "changing_in_order", "printing"])
def test_kill_9_in_the_middle_of_a_call_that_must_not_happen_twice_is_not_run_again(
    serve: Any, scene: Any, function: str
) -> None:
    with serve() as daemon:
        made = scene(daemon, function, **AGAIN)
        made.kill()
        made.client.says("DaemonLost", "lost")
        made.client.ends()
        assert daemon.counts().calls == 0


FORMER = """
    import gc
    former = [jitclient.device_put(np.full(3, n, np.float32)) for n in range(3)]
    print("ready")
    sys.stdin.readline()
    later = [jitclient.device_put(np.full(3, n, np.float32)) for n in range(10, 13)]  # under the same names
    del former
    gc.collect()
    add = jitclient.jit(lambda x: x + 1)
    assert [float(add(np.float32(n))) for n in range(3)] == [1, 2, 3]  # each carries what was dropped
    print([float(np.asarray(array)[0]) for array in later])
"""


def test_handles_of_a_daemon_that_is_gone_free_nothing_of_the_next(serve: Any, start_client: Any) -> None:
    with serve() as daemon:
        client = start_client(daemon, FORMER, JITSERVER_AUTOSTART="1")
        client.says("ready")
        daemon.process.kill()
        daemon.process.wait()
        client.goes_on()
        client.says("[10.0, 11.0, 12.0]")
        client.ends()


def stop(daemon: Any, until: Any) -> None:
    daemon.process.send_signal(signal.SIGSTOP)
    stat = Path(f"/proc/{daemon.process.pid}/stat")
    until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", "the daemon to hang")


def test_a_daemon_that_hangs_is_given_up_and_asked_again_later(
    serve: Any, client_of: Any, until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    @jitclient.jit
    def add(x: Any) -> Any:
        return x + 1

    with serve() as daemon, client_of(daemon.address) as session:
        big = add(np.zeros((1000, 1000), np.float32))  # too large to come unasked
        assert float(add(np.float32(1))) == 2
        reached = process.session().connection
        assert reached is not None
        reached._channel.stream.set_patience(0.3)
        monkeypatch.setattr("jitclient.session.session._GOODBYE_SECONDS", 0.3)
        stop(daemon, until)
        try:
            with pytest.raises(errors.DaemonUnavailable, match="has sent nothing"):
                add(np.float32(1))
            with monkeypatch.context() as patch:
                patch.setattr("jitclient.session.handshake.reach", None)  # it is not asked again for a while
                for _ in range(3):
                    with pytest.raises(errors.DaemonUnavailable, match="has sent nothing"):
                        add(np.float32(1))
                with pytest.raises(errors.DaemonUnavailable, match="has sent nothing"):
                    np.asarray(big)
        finally:
            daemon.process.send_signal(signal.SIGCONT)
        session._finder._retry_at = 0.0  # the while is over
        session._finder._patience = 60.0  # a second may be too short on a busy machine
        assert np.asarray(big)[0, 0] == 1  # it woke up in time, and the session with it
        assert np.asarray(add(np.ones((300, 300), np.float32)))[0, 0] == 2


def test_calls_run_in_the_process_while_the_daemon_hangs(serve: Any, start_client: Any, until: Any) -> None:
    source = """
    import warnings
    warnings.simplefilter("always")
    f = jitclient.jit(lambda x: x + 1)
    print(f(np.float32(1)))
    sys.stdin.readline()
    print([float(f(np.float32(n))) for n in range(50)])
    """
    with serve() as daemon:
        client = start_client(daemon, source, JITSERVER_TIMEOUT="5", JITSERVER_FALLBACK="local")
        client.says("2.0")
        stop(daemon, until)
        try:
            client.goes_on()
            client.says(str([n + 1.0 for n in range(50)]))
        finally:
            daemon.process.send_signal(signal.SIGCONT)
        assert client.ends().count("runs in this process, on the cpu: the daemon has sent nothing for 5 s") == 1


def test_a_daemon_that_hangs_does_not_keep_a_program_from_ending(serve: Any, start_client: Any, until: Any) -> None:
    source = """
    import jitclient.session.session
    jitclient.session.session._GOODBYE_SECONDS = 0.3
    session = jitclient.connect()
    session.count_local_run()  # it has something to tell
    print("ready")
    sys.stdin.readline()
    """
    with serve() as daemon:
        client = start_client(daemon, source)
        client.says("ready")
        stop(daemon, until)
        try:
            client.goes_on()
            until(lambda: client.process.poll() is not None, "the program to end")
        finally:
            daemon.process.send_signal(signal.SIGCONT)
        client.ends()


def test_a_daemon_that_takes_nothing_is_given_up(
    serve: Any, client_of: Any, until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jitclient.session.session._GOODBYE_SECONDS", 0.3)
    with serve("--shared-memory", "0") as daemon, client_of(daemon.address) as session:
        session.connection._channel.stream.set_patience(0.3)
        stop(daemon, until)
        try:
            with pytest.raises(errors.DaemonError, match="has not read"):
                jitclient.device_put(np.zeros((2000, 2000), np.float32))
        finally:
            daemon.process.send_signal(signal.SIGCONT)


# ---- drain


def test_sigterm_lets_a_running_call_finish_and_takes_nothing_new(
    serve: Any, scene: Any, client_of: Any, until: Any
) -> None:
    with serve() as daemon, client_of(daemon.address):
        assert float(add_two(np.float32(1))) == 3
        made = scene(daemon, "slow")
        daemon.process.send_signal(signal.SIGTERM)
        until(lambda: not daemon.path.exists(), "the door to close")
        with pytest.raises(errors.DaemonUnavailable):  # it was refused with DaemonDraining, and there is no other
            add_two(np.float32(1))
        assert daemon.process.poll() is None
        made.gate.unlink()
        made.client.says("2.0")
        made.client.ends()
        assert daemon.process.wait(60) == 0
        assert list(daemon.path.parent.glob("*.sock")) == []


@jitclient.jit
def add_two(x: Any) -> Any:
    return x + 2


def test_a_client_of_a_draining_daemon_moves_on_to_a_new_one(
    serve: Any, scene: Any, start_client: Any, until: Any
) -> None:
    with serve() as daemon:
        source = """
    f = jitclient.jit(lambda x: x * 5)
    print(float(f(np.float32(1))))
    sys.stdin.readline()
    print(float(f(np.float32(2))))
"""
        other = start_client(daemon, source, JITSERVER_AUTOSTART="1")
        other.says("5.0")
        made = scene(daemon, "slow")
        daemon.process.send_signal(signal.SIGTERM)
        until(lambda: not daemon.path.exists(), "the door to close")
        other.goes_on()
        until(lambda: list(daemon.path.parent.glob("*.start")), "the other client to start a daemon")
        made.gate.unlink()
        made.client.says("2.0")
        assert daemon.process.wait(60) == 0
        other.says("10.0")
        assert "started a daemon" in other.ends()


@pytest.mark.parametrize("function", ["slow", "slow_to_trace"])
def test_what_takes_longer_than_the_drain_is_given_up(serve: Any, scene: Any, function: str) -> None:
    with serve("--drain", "0.2") as daemon:
        made = scene(daemon, function)
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.process.wait(60) == 0
        made.gate.unlink()
        made.client.says("DaemonUnavailable", "lost")
        made.client.ends()
        assert not daemon.path.exists()


def test_an_end_in_the_middle_of_a_compile_is_clean(serve: Any, start_client: Any, until: Any) -> None:
    source = """
    import jax, jax.numpy as jnp

    @jitclient.jit
    def heavy(x):
        for n in range(400):
            x = jnp.sin(x @ x) + jnp.fft.fft(x).real * n
        return x

    print("ready")
    try:
        heavy(np.ones((64, 64), np.float32))
        print("finished")
    except errors.DaemonError:
        print("given up")
"""
    with serve("--drain", "0") as daemon:
        client = start_client(daemon, source)
        client.says("ready")
        until(lambda: daemon.counts().traces > 0, "the work to begin")
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.process.wait(60) == 0
        client.says("given up")
        client.ends()
