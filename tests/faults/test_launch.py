"""Starting daemons: one, however many clients want it, whatever an earlier one left behind, or a word why not."""

import fcntl
import json
import os
import pwd
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import platformdirs
import pytest

from jitclient import errors
from jitclient.core import directories
from jitclient.core.directories import runtime_directory
from jitclient.core.settings import Settings, settings
from jitclient.session import handshake, launch
from jitclient.session import session as client_session
from jitclient.wire.address import Address
from jitclient.wire.introspection import Status
from jitclient.wire.messages import Verb
from jitserver.cli import lifecycle
from jitserver.cli.systemd import target
from jitserver.daemon import address_lock

ONE = """
    print(float(jitclient.jit(lambda x: x + 1)(np.float32(1))))
"""


@pytest.fixture
def nobody(serve: Any) -> Any:
    """A daemon that was killed: its socket and its lock are still there."""
    with serve() as daemon:
        daemon.process.kill()
        daemon.process.wait()
        assert daemon.path.exists()
        yield daemon


@pytest.mark.slow
def test_eight_clients_race_and_start_one_daemon(nobody: Any, start_client: Any) -> None:
    clients = [start_client(nobody, ONE, JITSERVER_AUTOSTART="1") for _ in range(8)]
    for client in clients:
        client.says("2.0")
    assert len(nobody.pids()) == 1
    said = "".join(client.ends() for client in clients)
    assert said.count("started a daemon") == 1, said + launch.log_path(Address.parse(nobody.address)).read_text()
    assert nobody.counts().compiles == 1


def test_a_daemon_that_cannot_start_is_unavailable_and_its_last_words_say_why(
    nobody: Any, start_client: Any, tmp_path: Path
) -> None:
    broken = tmp_path / "site-packages" / "jax"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ImportError('this jax is broken')")
    source = """
    f = jitclient.jit(lambda x: x + 1)
    for _ in range(20):  # the first try says why; the others do not take as long
        try:
            f(np.float32(1))
        except errors.DaemonUnavailable as error:
            assert "this jax is broken" in str(error), error
    print(len(open(os.environ["LOG"]).read().split("ImportError: this jax")) - 1)
"""
    log = launch.log_path(Address.parse(nobody.address))
    path = os.pathsep.join([str(broken.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    client = start_client(nobody, source, JITSERVER_AUTOSTART="1", PYTHONPATH=path, LOG=str(log))
    client.says("1")
    client.ends()
    assert nobody.pids() == []


def test_the_second_serve_at_an_address_is_refused(victim: Any) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "jitserver", "serve", "--address", victim.address],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "serves at" in done.stderr
    assert "Traceback" not in done.stderr
    assert victim.counts().pid == victim.process.pid


def test_a_daemon_that_a_supervisor_starts_is_waited_for_from_its_imports_on(short_path: Path) -> None:
    slow = short_path / "site-packages" / "jax"
    slow.mkdir(parents=True)
    (slow / "__init__.py").write_text("print('imports', flush=True)\ninput()\nraise ImportError('enough')")
    path = os.pathsep.join([str(slow.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    address = Address(short_path / "new" / "d.sock")
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "jitserver", "serve", "--address", str(address)],
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "imports\n"
        with open(address.path.with_suffix(".start"), "a") as lock:
            with pytest.raises(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            process.communicate("\n")
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_daemon_that_serves_keeps_nobody_waiting(victim: Any) -> None:
    assert not launch.wait_for_other_start(Address.parse(victim.address))


@pytest.mark.parametrize("suffix", ["lock", "start"])
def test_a_lock_that_is_a_link_is_not_followed(short_path: Path, suffix: str, cli: Any) -> None:
    precious = short_path / "precious"
    precious.write_text("precious")
    (short_path / f"d.{suffix}").symlink_to(precious)
    command = ["start"] if suffix == "start" else ["serve"]
    done = cli(*command, env={"JITSERVER_ADDRESS": f"unix:{short_path}/d.sock"})
    assert done.returncode == 1
    assert f"d.{suffix}" in done.stderr
    assert "Traceback" not in done.stderr
    assert precious.read_text() == "precious"


def test_a_daemon_started_by_a_client_gets_none_of_its_units_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID"):
        monkeypatch.setenv(name, "1")
        assert name not in launch.daemon_environment()


def test_a_program_that_waits_for_children_itself_is_no_obstacle(nobody: Any, start_client: Any) -> None:
    client = start_client(nobody, "    signal.signal(signal.SIGCHLD, signal.SIG_IGN)" + ONE, JITSERVER_AUTOSTART="1")
    client.says("2.0")
    client.ends()


LOCALLY = """
    import json, warnings, numpy as np, jitclient
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        value = float(jitclient.jit(lambda x: x + 1)(np.float32(1)))
    print(json.dumps([value, [str(warning.message) for warning in caught]]))
"""


@pytest.mark.parametrize("name", ["JITSERVER_ADDRESS", "XDG_RUNTIME_DIR"])
def test_where_no_folder_can_be_written_calls_run_in_the_process(short_path: Path, run_script: Any, name: str) -> None:
    (short_path / "jitserver").write_text("in the way")
    (short_path / f"jitserver-{os.getuid()}").write_text("in the way")
    (short_path / ".cache").write_text("in the way")
    env = {"JITSERVER_AUTOSTART": "1", "JITSERVER_FALLBACK": "local"}
    env |= {
        "JITSERVER_ADDRESS": {"JITSERVER_ADDRESS": f"unix:{short_path}/jitserver/d.sock"},
        "XDG_RUNTIME_DIR": {
            "JITSERVER_ADDRESS": "",
            **dict.fromkeys(("XDG_RUNTIME_DIR", "TMPDIR", "HOME"), str(short_path)),
        },
    }[name]
    value, [warning] = run_script(LOCALLY, env=env)
    assert value == 2
    assert "runs in this process, on the cpu: " in warning
    assert str(short_path / "jitserver") in warning


@pytest.mark.parametrize("name", ["lock", "start", "log"])
def test_nothing_waits_for_a_pipe_in_the_place_of_a_file(
    short_path: Path, run_script: Any, cli: Any, name: str
) -> None:
    address = Address(short_path / "d.sock")
    path = launch.log_path(address) if name == "log" else address.path.with_suffix(f".{name}")
    os.mkfifo(path)
    env = {"JITSERVER_ADDRESS": str(address), "JITSERVER_AUTOSTART": "1", "JITSERVER_FALLBACK": "local"}
    value, [warning] = run_script(LOCALLY, env=env)
    assert value == 2
    assert path.name in warning
    env["JITSERVER_AUTOSTART"] = "0"
    assert run_script(LOCALLY, env=env)[0] == 2
    for command in ("start", "status", "stop"):
        done = cli(command, env=env)
        assert done.returncode in (1, 3), command
        assert "Traceback" not in done.stderr, command


@pytest.mark.parametrize(
    ("name", "why"),
    [("d.sock", "[Errno 17] The path exists and is not a socket"), ("d.lock", "not a lock file of a daemon")],
)
def test_what_is_not_ours_is_named_and_left_alone(short_path: Path, run_script: Any, name: str, why: str) -> None:
    precious = short_path / name
    precious.write_text("precious" * 20)
    address = f"unix:{short_path}/d.sock"
    env = {"JITSERVER_ADDRESS": address, "JITSERVER_AUTOSTART": "1", "JITSERVER_FALLBACK": "local"}
    value, [warning] = run_script(LOCALLY, env=env)
    assert value == 2
    assert f"a daemon cannot listen at {address}: " in warning
    assert why in warning
    assert str(precious) in warning
    assert "\n" not in warning
    assert precious.read_text() == "precious" * 20


def test_where_no_folder_can_be_written_commands_say_so(short_path: Path, cli: Any) -> None:
    for name in ("jitserver", f"jitserver-{os.getuid()}", ".cache"):
        (short_path / name).write_text("in the way")
    env = {"JITSERVER_ADDRESS": "", **dict.fromkeys(("XDG_RUNTIME_DIR", "TMPDIR", "HOME"), str(short_path))}
    for command in ("start", "status", "stop", "serve"):
        done = cli(command, env=env)
        assert done.returncode in (1, 3), command
        assert "cannot create a directory for the daemon's socket" in done.stderr, command
        assert "Traceback" not in done.stderr, command


@pytest.mark.parametrize("command", [("status",), ("stop",), ("cache", "ls")], ids=" ".join)
def test_folders_that_must_not_be_looked_into_are_as_good_as_none(cli: Any, command: tuple[str, ...]) -> None:
    nowhere = f"/{'x' * 300}"  # root may look into all others
    env = dict.fromkeys(("XDG_CONFIG_HOME", "XDG_CACHE_HOME"), nowhere)
    done = cli(*command, env={**env, "JITSERVER_ADDRESS": "", "JITSERVER_CACHE_DIR": ""})
    assert done.returncode == 3
    assert "jitserver is not running" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_log_that_cannot_be_in_its_folder_is_beside_the_socket(
    short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (short_path / "jitserver").write_text("in the way")
    monkeypatch.setenv("XDG_STATE_HOME", str(short_path))
    with pytest.warns(RuntimeWarning, match=f"because .*{short_path}/jitserver"):
        assert launch.log_directory() == runtime_directory()


def test_a_user_without_a_home_has_a_log_and_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless(*_: object, **__: object) -> str:
        raise RuntimeError("could not determine the home directory")

    monkeypatch.setattr(platformdirs, "user_log_dir", homeless)
    monkeypatch.setattr(platformdirs, "user_cache_dir", homeless)
    for name in ("JITSERVER_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name)
    settings.cache_clear()
    with pytest.warns(RuntimeWarning, match="home directory"):
        assert launch.log_directory() == runtime_directory()
    assert directories.cache_root() == runtime_directory() / "cache"
    assert directories.existing_directories() == []
    settings.cache_clear()


def test_a_user_without_name_and_home_has_no_units(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(uid: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    for name in ("HOME", "XDG_CONFIG_HOME", "JITSERVER_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    settings.cache_clear()
    assert target.installed() is None
    settings.cache_clear()


def test_a_full_disk_keeps_no_daemon_from_its_lock(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    address = Address(short_path / "d.sock")
    monkeypatch.setattr(address_lock.os, "write", full)
    with address_lock._acquire_lock(address):
        assert address.is_held()
        here, there = socket.socketpair()
        with here, there:
            assert lifecycle._daemon_pid(address, here) == os.getpid()
    assert not address.is_held()


def test_an_address_that_is_kept_is_held_until_its_next_program_releases_it(short_path: Path) -> None:
    address = Address(short_path / "d.sock")
    first = address_lock.HeldAddress(address)
    first.keep()
    first.release()
    assert address.is_held()
    second = address_lock.HeldAddress(address)
    assert address_lock._KEPT_LOCK not in os.environ
    second.listen().close()
    assert second.renew() is None, "lock and socket are its own"
    second.release()
    assert not address.is_held()


@pytest.mark.parametrize("value", ["nonsense", "-1", "99999", "0"])
def test_a_variable_that_names_no_lock_of_the_address_is_ignored(
    short_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv(address_lock._KEPT_LOCK, value)
    address = Address(short_path / "d.sock")
    held = address_lock.HeldAddress(address)
    assert address.is_held()
    held.release()
    assert not address.is_held()


# ---- the handshake


def test_a_daemon_that_is_ending_is_waited_for_until_its_door_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [errors.DaemonDraining("it stops"), errors.DaemonLost("it hung up"), errors.DaemonUnavailable("gone")]

    def greeted(*_: Any) -> Any:
        raise answers.pop(0)

    monkeypatch.setattr(handshake, "_reach", greeted)
    with pytest.raises(errors.DaemonUnavailable, match="gone"):
        handshake.reach(Settings())
    monkeypatch.setattr(handshake, "_EXIT_SECONDS", 0)
    answers += [errors.DaemonDraining("it stops")]
    with pytest.raises(errors.DaemonUnavailable, match="it stops"):
        handshake.reach(Settings())


def test_the_time_to_reach_a_daemon_is_without_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0

    def greeted(*_: Any) -> Any:
        nonlocal now
        now += 50  # a start
        if now < 200:
            raise errors.DaemonLost("it ended as soon as it had started")
        return "reached"

    monkeypatch.setattr(handshake, "_reach", greeted)
    monkeypatch.setattr(handshake, "_EXIT_SECONDS", 60)
    monkeypatch.setattr(handshake, "monotonic", lambda: now)
    assert handshake.reach(Settings()) == "reached"  # type: ignore[comparison-overlap]


@pytest.mark.parametrize("error", [OSError(24, "Too many open files"), MemoryError()])
def test_a_process_at_its_limits_has_no_daemon(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def limited(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(handshake, "_reach", limited)
    with pytest.raises(errors.DaemonUnavailable, match=r"Too many open files|no memory is left"):
        handshake.reach(Settings())


def test_a_daemon_that_hung_is_asked_again_with_little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    patience: list[float] = []
    answers = [errors.DaemonSilent("silence")] * 2
    now = 100.0

    def asked(_: Any, __: Any, seconds: float) -> Any:
        patience.append(seconds)
        if answers:
            raise answers.pop()
        return "reached"

    monkeypatch.setattr(handshake, "reach", asked)
    monkeypatch.setattr(handshake, "monotonic", lambda: now)
    finder = handshake.Finder(Settings(timeout=30))
    for _ in range(20):
        with pytest.raises(errors.DaemonUnavailable, match="silence"):
            finder.reach(handshake.ClientId())
        now += 0.9
    assert patience == [30, 1]
    assert [finder.reach(handshake.ClientId()) for _ in range(2)] == ["reached"] * 2
    assert patience == [30, 1, 1, 30]


def test_a_question_that_an_ending_daemon_leaves_open_is_asked_of_what_follows(short_path: Path) -> None:
    path = short_path / "s"
    with socket.create_server(str(path), family=socket.AF_UNIX) as door:

        def hang_up_and_go() -> None:
            asker, _ = door.accept()
            asker.recv(1)
            path.unlink()
            asker.close()

        ending = threading.Thread(target=hang_up_and_go)
        ending.start()
        with pytest.raises(errors.DaemonUnavailable, match="no daemon answers"):
            handshake.ask(Settings(address=f"unix:{path}"), Verb.STATUS, None, Status)
        ending.join()


OTHERS = {
    "protocol": ("jitclient.session.handshake.PROTOCOL = 999", "protocol is 999 here and"),
    "Python": ("jitclient.session.handshake.platform.python_version = lambda: '3.99.1'", "Python is 3.99 here and 3."),
    "jax": (
        "sys.modules['jax'] = type(sys)('jax'); sys.modules['jax'].__version__ = '0.0.1'",
        "jax is 0.0.1 here and ",
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_versions_that_do_not_fit_are_told_of_both_sides_and_leave_no_session(
    unharmed: Any, start_client: Any, name: str
) -> None:
    patch, words = OTHERS[name]
    source = f"""
    import json, jitclient.session.handshake
    {patch}
    try:
        jitclient.connect()
    except errors.Incompatible as error:
        print(json.dumps(str(error)))
    sys.stdin.readline()
"""
    client = start_client(unharmed, source)
    text = json.loads(client.process.stdout.readline())
    assert words in text
    assert f"pid {unharmed.process.pid}" in text
    assert unharmed.counts().sessions == 0
    client.goes_on()
    client.ends()


def test_a_daemon_that_cannot_be_had_is_asked_again_only_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    now = 100.0

    def slowly(*_: Any) -> Any:
        nonlocal now
        now += 1
        asked.append(now)
        raise errors.DaemonUnavailable("none")

    monkeypatch.setattr(handshake, "reach", slowly)
    monkeypatch.setattr(handshake, "monotonic", lambda: now)
    session = client_session.Session(Settings(autostart=False))
    for _ in range(12):
        with pytest.raises(errors.DaemonUnavailable, match="none"), session:
            pass
        now += 1
    assert asked == [101.0, 111.0]
