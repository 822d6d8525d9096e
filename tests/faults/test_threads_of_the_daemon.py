"""A thread that the daemon needs breaks: the daemon exits in time and says so, and saves what it can."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jitclient.errors import JitserverError

pytestmark = pytest.mark.slow

END_SECONDS = 60  # a test fails instead of waiting for ever

DYING = """
import os, select, sys, threading

def perhaps_die():
    if os.path.exists(os.environ["WHEN"]):
        frame = sys._getframe()
        while frame.f_back:
            frame = frame.f_back
        if getattr(frame.f_locals.get("self"), "name", "") == os.environ["VICTIM"]:
            raise SystemExit("sabotage")

class Poll:
    def __init__(self):
        self._poll = _poll()
        self.register = self._poll.register

    def poll(self, *timeout):
        found = self._poll.poll(*timeout)
        perhaps_die()
        return found

def wait(self, timeout=None):
    woken = _wait(self, timeout)
    perhaps_die()
    return woken

_poll, select.poll = select.poll, Poll
_wait, threading.Condition.wait = threading.Condition.wait, wait
"""

NO_THREAD = """
import os, _thread

def start(function, args):
    if getattr(getattr(function, "__self__", None), "name", "") == os.environ["VICTIM"]:
        ACT
    return _start(function, args)

_start, _thread.start_new_thread = _thread.start_new_thread, start
"""

UNLINK = """
import os, time

def unlink(path, **options):
    if os.fspath(path).endswith(os.environ["SUFFIX"]):
        ACT
    _unlink(path, **options)

_unlink, os.unlink = os.unlink, unlink
"""

CLIENT = """
    @jitclient.jit
    def double(x):
        return x * 2

    @jitclient.jit
    def closes_all_files(x):
        os.closerange(3, 200)
        return x + 1

    named = jitclient.keep("named", lambda: {"w": np.arange(4.0)})
    resident = double(np.float32(21))
    jitclient.block_until_ready(resident)
    print("ready")
    sys.stdin.readline()
    if os.environ.get("CLOSES"):
        try:
            closes_all_files(np.float32(1))
        except errors.JitserverError:
            print("closed")
        sys.stdin.readline()
    print(float(resident), float(np.asarray(named["w"]).sum()))
"""


@pytest.fixture
def sabotaged(tmp_path: Path) -> Any:
    """Environment of a daemon that runs this code at its start, as if its system were like that."""

    def environment(code: str, **env: str) -> dict[str, str]:
        folder = tmp_path / "sabotage"
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(code)
        path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
        return {"PYTHONPATH": path, "JITSERVER_CACHE_DIR": os.environ["JITSERVER_CACHE_DIR"], **env}

    return environment


@pytest.fixture
def goes_on(new_daemon: Any) -> Any:
    """Starts the next daemon, where the client must find its arrays."""

    def go_on(daemon: Any, client: Any) -> None:
        with new_daemon(daemon.address, env={"JITSERVER_CACHE_DIR": os.environ["JITSERVER_CACHE_DIR"]}):
            client.goes_on()
            client.says("42.0 6.0")
            client.ends()

    return go_on


@pytest.mark.parametrize("victim", ["listener", "heartbeat", "writer"])
def test_a_daemon_that_lost_a_thread_saves_all_arrays_and_ends(
    serve: Any, sabotaged: Any, start_client: Any, goes_on: Any, tmp_path: Path, victim: str
) -> None:
    now = tmp_path / "now"
    with serve(**sabotaged(DYING, VICTIM=victim, WHEN=str(now))) as daemon:
        client = start_client(daemon, CLIENT)
        client.says("ready")
        now.touch()
        if victim == "listener":  # it wakes up when someone connects
            with contextlib.suppress(JitserverError):
                daemon.counts()
        assert daemon.process.wait(END_SECONDS) == 1
        goes_on(daemon, client)


def test_a_daemon_without_open_files_saves_all_arrays_and_ends(serve: Any, start_client: Any, goes_on: Any) -> None:
    with serve(JITSERVER_CACHE_DIR=os.environ["JITSERVER_CACHE_DIR"]) as daemon:
        client = start_client(daemon, CLIENT, CLOSES="1")
        client.says("ready")
        client.goes_on()
        client.says("closed")
        assert daemon.process.wait(END_SECONDS) == 1
        goes_on(daemon, client)


@pytest.mark.parametrize(
    ("act", "says"),
    [
        ('raise RuntimeError("can\'t start new thread")', "can't start new thread"),
        ("return 1", "did not start within 2 s"),  # the thread is there, and had no memory for its first step
    ],
    ids=["no thread", "a thread that cannot begin"],
)
@pytest.mark.parametrize(
    "victim", ["listener", *(pytest.param(name, marks=pytest.mark.slow) for name in ("heartbeat", "writer"))]
)
def test_a_daemon_that_gets_no_thread_does_not_start(
    sabotaged: Any, short_path: Path, victim: str, act: str, says: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "jitserver", "serve", "--address", f"unix:{short_path}/d.sock"],
        env={**os.environ, **sabotaged(NO_THREAD.replace("ACT", act), VICTIM=victim)},
        capture_output=True,
        text=True,
        timeout=END_SECONDS,
        check=False,
    )
    assert done.returncode == 1
    assert says in done.stderr


def test_a_daemon_without_a_thread_for_loading_ahead_serves(serve: Any, sabotaged: Any, start_client: Any) -> None:
    with serve(**sabotaged(NO_THREAD.replace("ACT", "return 1"), VICTIM="prewarm")) as daemon:
        client = start_client(daemon, CLIENT)
        client.says("ready")
        client.goes_on()
        client.says("42.0 6.0")
        client.ends()


def test_a_step_of_the_shutdown_that_fails_stops_no_other(
    serve: Any, sabotaged: Any, start_client: Any, goes_on: Any
) -> None:
    code = UNLINK.replace("ACT", 'raise PermissionError(13, "Permission denied", path)')
    with serve(**sabotaged(code, SUFFIX=".sock")) as daemon:
        client = start_client(daemon, CLIENT)
        client.says("ready")
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.process.wait(END_SECONDS) == 0
        goes_on(daemon, client)


def test_a_step_of_the_shutdown_that_hangs_ends_with_the_process(serve: Any, sabotaged: Any) -> None:
    with serve("--drain", "0", **sabotaged(UNLINK.replace("ACT", "time.sleep(1000)"), SUFFIX=".journal")) as daemon:
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.process.wait(END_SECONDS) == -signal.SIGALRM
