"""The fixtures that all tests share: an environment of their own, a daemon of their own, and fresh processes.

The tests run with JITSERVER_FALLBACK=error, so that nothing runs locally by accident; the daemon's counts of client
traces and local runs are checked after every test that uses it.
"""

import collections
import contextlib
import faulthandler
import gc
import itertools
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import msgspec
import pytest

from .outcomes import record_outcomes
from .own_variables import own_variables
from .running_daemon import run_daemon
from .sampled import is_in_part
from .spent import Spent

_HOME = Path(tempfile.mkdtemp(prefix="js-"))  # short: the path of a socket has 107 bytes at most
ADDRESS = f"unix:{_HOME}/d.sock"
START_SECONDS = 60
TEARDOWN_SECONDS = 180
_numbers = itertools.count()


def _set_environment() -> None:
    for name in [name for name in os.environ if name.startswith(("JITSERVER_", "JAX_", "XLA_"))]:
        if not name.startswith("JITSERVER_TEST_"):
            del os.environ[name]
    folders = {"HOME": "home", "XDG_CACHE_HOME": "cache", "XDG_STATE_HOME": "state", "XDG_RUNTIME_DIR": "run"}
    for name, folder in folders.items():
        path = _HOME / folder
        path.mkdir(mode=0o700)
        os.environ[name] = str(path)
    os.environ.update(
        JITSERVER_ADDRESS=ADDRESS,
        JITSERVER_FALLBACK="error",
        JITSERVER_AUTOSTART="0",
        PYTHONDONTWRITEBYTECODE="1",  # what a test edits within a second is new, and cached bytecode does not see that
    )
    if "JITSERVER_TEST_PLATFORM" in os.environ:  # daemons compute there; many processes share its memory
        os.environ.update(
            JAX_PLATFORMS=f"{os.environ['JITSERVER_TEST_PLATFORM']},cpu", XLA_PYTHON_CLIENT_PREALLOCATE="false"
        )
    elif entry_points(group="jax_plugins"):  # otherwise jax finds nothing else, and most users do not tell it
        os.environ["JAX_PLATFORMS"] = "cpu"
    if "JITSERVER_TEST_VERIFY" in os.environ:  # every program that is made is compared with one of the client's own
        os.environ["JITSERVER_VERIFY"] = "always"


def _heed_signals() -> None:
    """Undoes what `nohup` and `&` hand down, so that the programs that tests start end by these signals."""
    usual = {signal.SIGHUP: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler, signal.SIGQUIT: signal.SIG_DFL}
    for number, handler in usual.items():
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


_heed_signals()
_set_environment()  # at once: the conftests of folders below may read it when they are imported


HASTY = "--xla_backend_optimization_level=0"
"""With this, XLA compiles in half the time. What it makes of a program is the same in all processes."""


def pytest_configure(config: pytest.Config) -> None:
    """Has XLA optimize less in the core; with other marks, it compiles as it does for users."""
    record_outcomes(config)
    config.pluginmanager.register(Spent())
    if config.option.markexpr == "not slow":
        os.environ["XLA_FLAGS"] = HASTY


def pytest_xdist_auto_num_workers() -> int:
    """Return one more than there are cores, as some workers wait for processes; pyproject.toml has the maximum."""
    return len(os.sched_getaffinity(0)) + 1


def pytest_unconfigure(config: pytest.Config) -> None:
    shutil.rmtree(_HOME, ignore_errors=True)


STARTS_PROCESSES = {"new_daemon", "run_script"}
"""Fixtures that start a daemon or a program for one test, which takes seconds."""

FAULTS = Path(__file__).parent / "faults"

THOROUGH = {
    *("benchmarks", "systemd", "end_to_end/test_live_matrix.py", "end_to_end/test_many_captures.py"),
    *("end_to_end/test_soak.py", "end_to_end/test_lab_on_hosts.py", "end_to_end/test_lab_on_s3.py"),
    *("end_to_end/test_pools_on_clusters.py", "end_to_end/test_pools_on_ray.py", "jitclient/arrays/test_indexing.py"),
    *("jitclient/arrays/test_operations.py", "examples/test_profile_of_ppo.py"),
    "jitserver/notebooks/test_jupyterlab.py",
}
"""Folders and files whose slow tests have `thorough`: CI has no time for them, scripts/test_everything has."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", help="K/N: of the tests, a part by their names; N parts have all", metavar="K/N")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out of the core what starts processes, but for the first test of each file about faults.

    The marks `core` and `slow` come before this rule. The files that may take long come first, so that no worker has
    one of them at the end, when the others have nothing left to do.
    """
    families = set()
    for item in items:
        _skip_on_other_platforms(item)
        path = Path(os.path.relpath(item.path, Path(__file__).parent))
        marked = any(item.get_closest_marker(name) for name in ("core", "slow"))
        if not marked and not STARTS_PROCESSES.isdisjoint(getattr(item, "fixturenames", ())):
            if item.path.parent == FAULTS and item.path not in families:
                families.add(item.path)
            else:
                item.add_marker(pytest.mark.slow)
        if item.get_closest_marker("slow") and not THOROUGH.isdisjoint(map(str, (path, *path.parents))):
            item.add_marker(pytest.mark.thorough)
    if part := config.getoption("part", None):
        left_out = {item for item in items if not is_in_part(item.nodeid, part)}
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    items.sort(key=_weights(items).__getitem__, reverse=True)


def _skip_on_other_platforms(item: pytest.Item) -> None:
    if "JITSERVER_TEST_PLATFORM" in os.environ:
        for mark in item.iter_markers("cpu"):
            item.add_marker(pytest.mark.skip(reason=f"about the CPU: {mark.kwargs['reason']}"))
    if "OTHER_PLATFORM" in os.environ and item.get_closest_marker("callbacks"):
        item.add_marker(pytest.mark.skip(reason="NOT TESTED HERE: this platform cannot call back into Python"))


def _weights(items: list[pytest.Item]) -> dict[pytest.Item, tuple[float, int]]:
    """For each test, what its file may cost: the longest timeout of its tests that have one, and their number."""
    timeouts: dict[Path, float] = {}
    for item in items:
        mark = item.get_closest_marker("timeout")
        timeouts[item.path] = max(timeouts.get(item.path, 0), mark.args[0] if mark else 0)
    numbers = collections.Counter(item.path for item in items)
    return {item: (timeouts[item.path], numbers[item.path]) for item in items}


def pytest_collection_finish() -> None:
    """Spares each garbage collection the objects of the libraries and of pytest, which stay anyway."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown() -> Iterator[None]:
    """Ends a process whose test does not come to an end, rather than all tests: a timeout strikes once in a test."""
    faulthandler.dump_traceback_later(TEARDOWN_SECONDS, exit=True)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


def new_cache_dir() -> str:
    """A folder that no daemon has used, so that nothing is found there."""
    return tempfile.mkdtemp(prefix="cache-", dir=_HOME)


@pytest.fixture(autouse=True)
def _own_cache() -> Iterator[None]:
    """Give each process that a test starts without a setting for the cache one of its own.

    No other variable outlives the test.
    """
    # Not the fixture `monkeypatch`, which would then undo what tests do with it after all else is torn down.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JITSERVER_CACHE_DIR", str(_HOME / f"cache-{next(_numbers)}"))
        with own_variables():
            yield


_logs: dict[str, Path] = {}
"""The logs of daemons, by address."""


@contextlib.contextmanager
def running_daemon(address: str, *options: str, env: dict[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A daemon of its own process, which serves when this begins and has ended when this ends."""
    paths = {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}  # of the sources, too, where they are not installed
    with run_daemon(address, new_cache_dir(), options=options, env={**paths, **(env or {})}) as daemon:
        _logs[address] = daemon.log
        try:
            yield daemon.process
        except BaseException:
            print(f"the daemon of pid {daemon.pid}, status {daemon.process.poll()}, wrote:\n{daemon.log.read_text()}")
            raise


def wait_until(condition: Callable[[], Any], what: str, seconds: float = START_SECONDS) -> Any:
    """Polls until `condition` holds, and returns what it returned."""
    import threading
    import time

    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds} s in vain for {what}")
        pause.wait(0.02)


class _SharedDaemon:
    """The daemon that most tests share, from the first of them on."""

    def __init__(self) -> None:
        self._contexts = contextlib.ExitStack()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = self._contexts.enter_context(running_daemon(ADDRESS))

    def stop(self) -> None:
        self._contexts.close()

    def replace_if_ended(self) -> str | None:
        """Start another one if it has ended, so that later tests have one, and return how it ended."""
        if self._process is None or (status := self._process.poll()) is None:
            return None
        how = f"the shared daemon ended with status {status}; it wrote:\n{_logs[ADDRESS].read_text()}"
        self.stop()
        self.start()
        return how


_shared = _SharedDaemon()


@pytest.fixture(scope="session")
def shared_daemon() -> Iterator[str]:
    """The daemon that most tests share."""
    _shared.start()
    yield ADDRESS
    _shared.stop()


@pytest.fixture(autouse=True)
def _shared_daemon_stays() -> Iterator[None]:
    """Fails the test in which the shared daemon ends."""
    yield
    if (how := _shared.replace_if_ended()) is not None:
        pytest.fail(how)


@pytest.fixture
def daemon(shared_daemon: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """The shared daemon's address; in the test, nothing may run outside it.

    Each new program is traced by its caller, too. A client trace is one that the daemon had no part in. When a caller's
    own trace raises, the daemon finishes its trace later, and counts it then.
    """
    from jitclient.core import events

    settle(shared_daemon)
    logged = _logs[shared_daemon].stat().st_size
    before, local_before = status(shared_daemon), events.log.counted("local")
    yield shared_daemon
    settle(shared_daemon)
    print(_logs[shared_daemon].read_bytes()[logged:].decode())  # pytest shows it beside a failure
    after = status(shared_daemon)
    here = f"; in this process: {dict(events.log.counted('local').items() - local_before.items())}"
    assert after["local_runs"] == before["local_runs"], "something ran locally" + here
    assert after["client_traces"] == before["client_traces"], "something was traced in a client" + here


def settle(address: str) -> None:
    """Have the daemon at an address count all that was done until now: otherwise it counts some in a later test.

    This process reports what it ran itself with its next look-up only, and the daemon may still be tracing for a call
    that has ended.
    """
    from jitclient.errors import JitserverError
    from jitclient.session import process

    for session in list(process._sessions):
        with contextlib.suppress(JitserverError), session.lock:
            if session.connection is not None:
                session.send_report()
    wait_until(lambda: not is_making(address), "the traces of earlier calls to end")


@pytest.fixture
def cli() -> Callable[..., subprocess.CompletedProcess[str]]:
    """The command line, in a process of its own."""
    return jitserver


@pytest.fixture
def counts() -> Callable[..., dict[str, Any]]:
    """The counters of the daemon at an address (the shared one by default)."""
    return status


@pytest.fixture
def on_the_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs stay on the daemon, as on an accelerator."""
    monkeypatch.setattr("jitclient.calls.moved_in._FIRST_CALLS", math.inf)


@pytest.fixture(scope="session")
def new_daemon() -> Callable[..., contextlib.AbstractContextManager[subprocess.Popen[bytes]]]:
    """Starts a daemon of its own for a test."""
    return running_daemon


@pytest.fixture(scope="session")
def until() -> Callable[..., Any]:
    """Polls until a condition holds."""
    return wait_until


class Gate:
    """A pipe that a trace waits to open for writing. To read one would be an input of the trace.

    `waits` is a line of code that waits on the daemon only, `waits_here` one that waits in the client only.
    """

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        imports = "import pathlib; from jitclient.session import process"
        self.waits = f"{imports}; process.inside_daemon and pathlib.Path({str(path)!r}).write_bytes(b'')"
        self.waits_here = f"{imports}; process.inside_daemon or pathlib.Path({str(path)!r}).write_bytes(b'')"
        self._path = path
        self._reader: int | None = None

    def open(self) -> None:
        if self._reader is None:
            self._reader = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK)

    def close(self) -> None:
        self.open()  # nothing waits any longer
        assert self._reader is not None
        os.close(self._reader)


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    """Holds up a trace on the daemon until it is opened."""
    made = Gate(tmp_path / "gate")
    yield made
    made.close()


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder whose path is short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="js-") as folder:
        yield Path(folder)


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A folder with a short path that other users may enter, wherever temporary files are."""
    with tempfile.TemporaryDirectory(prefix="js-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def status(address: str = ADDRESS) -> dict[str, Any]:
    """The daemon's counters, asked for by this process: the command would be one more process for each test."""
    from jitclient.core.settings import Settings
    from jitclient.session.handshake import ask
    from jitclient.wire.introspection import Status
    from jitclient.wire.messages import Verb

    return msgspec.structs.asdict(ask(Settings(address=address), Verb.STATUS, None, Status))


def is_making(address: str) -> bool:
    """Whether a daemon is making programs."""
    from jitclient.core.settings import Settings
    from jitclient.session.handshake import ask
    from jitclient.wire.introspection import Snapshot
    from jitclient.wire.messages import Verb

    return bool(ask(Settings(address=address), Verb.SNAPSHOT, None, Snapshot).making)


def jitserver(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """The command line, in a process of its own."""
    return run_python("-P", "-m", "jitserver", *arguments, env=env)


def run_python(
    *arguments: str, env: dict[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """A fresh Python process."""
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, **(env or {})},
        cwd=cwd or _HOME,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.fixture
def run_script(tmp_path: Path) -> Callable[..., Any]:
    """Runs a program in a fresh process, its file in `tmp_path`; returns what its last line says in JSON."""

    def run(source: str, *arguments: str, name: str = "program.py", env: dict[str, str] | None = None) -> Any:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(source))
        done = run_python(str(path), *arguments, env=env, cwd=tmp_path)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return json.loads(done.stdout.splitlines()[-1])

    return run


class OwnDaemon:
    """A daemon of a test's own, not started yet; programs that use it, and its counters.

    Attributes:
        folder: a folder of the test's own, which holds the socket.
        address: of the daemon.
        env: further environment variables of the daemon.
    """

    def __init__(self, folder: Path, run_script: Callable[..., Any]) -> None:
        self.folder = folder
        self.address = f"unix:{folder}/d.sock"
        self.env: dict[str, str] = {}
        self._run_script = run_script

    def serving(self, *options: str, **env: str) -> contextlib.AbstractContextManager[subprocess.Popen[bytes]]:
        """Run the daemon in a context, with these options and variables."""
        return running_daemon(self.address, *options, env={**self.env, **env})

    def run(self, source: str, *arguments: str, **env: str) -> Any:
        """Run a program that uses the daemon, and return its last line, which is JSON."""
        return self._run_script(source, *arguments, env={"JITSERVER_ADDRESS": self.address, **env})

    def counts(self) -> dict[str, Any]:
        """Return the daemon's counters."""
        return status(self.address)


@pytest.fixture
def own(short_path: Path, run_script: Callable[..., Any]) -> OwnDaemon:
    """A daemon of the test's own."""
    return OwnDaemon(short_path, run_script)
