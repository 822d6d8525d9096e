"""Functions that end the daemon: three times and no more, also across daemons, and at no other program's cost."""

import contextlib
import functools
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jitclient
from jitclient.core.directories import runtime_directory
from jitserver.store.catalog import CATALOG, Catalog
from jitserver.store.strikes import KILLS_PER_STRIKE, MAX_STRIKES, Strikes, Work

pytestmark = pytest.mark.slow

FUNCTIONS = """
    import ctypes, functools, json, pathlib, select
    import jax
    from jitclient.session.handshake import ask
    from jitclient.core.settings import settings
    from jitclient.wire.introspection import Status
    from jitclient.wire.messages import Verb

    # What ends the process that traces it would end its client as well, as in plain JAX: these end the daemon only.

    def aborts(x):
        from jitclient.session import process
        if process.inside_daemon:
            os.abort()
        return x + 1

    def exits(x):
        from jitclient.session import process
        if process.inside_daemon:
            os._exit(7)
        return x + 1

    def aborts_with_its_client(x):
        from jitclient.session import process
        if process.inside_daemon:
            os.kill(CLIENT, signal.SIGKILL)
            os.abort()
        return x + 1

    def reads_address_zero(x):
        from jitclient.session import process
        if process.inside_daemon:
            ctypes.string_at(0)
        return x + 1

    def descends(n):
        return max([n + 1], key=descends)  # each level takes some of the C stack

    def recurses(x):
        from jitclient.session import process
        if process.inside_daemon:
            sys.setrecursionlimit(10**9)
            descends(0)
        return x + 1

    def calls_back(x):
        def ends(x):
            from jitclient.session import process
            if not process.session().is_yielded:  # it runs in this process
                return x
            pid = ask(settings(), Verb.STATUS, None, Status).pid
            ended = os.pidfd_open(pid)
            pathlib.Path("CALLED").touch()
            while pathlib.Path("GATE").exists() and not select.select([ended], [], [], 0.01)[0]:
                if not pathlib.Path("WAIT").exists():
                    os.kill(pid, signal.SIGSEGV)
            os.close(ended)
            return x
        return jax.pure_callback(ends, jax.ShapeDtypeStruct((), "float32"), x) + 1

    def takes_long_to_compile(x):
        x = x * np.ones((64, 64), np.float32)
        for n in range(400):
            x = jax.numpy.sin(x @ x) + jax.numpy.fft.fft(x).real * n
        return x

    CLIENT = os.getpid()
    name = os.environ.get("FUNCTION", "calls_back")
    crashing = jitclient.jit(globals()[name])
    x = np.float32(1)
    print("ready")
"""
CALLS = """
    for _ in range(int(os.environ.get("CALLS", "1"))):
        try:
            print(float(crashing(x)))
        except errors.CrashesDaemon as error:
            print("refused")
            print(json.dumps([str(error), str(jitclient.explain(crashing, x))]))
        except errors.DaemonError as error:
            print(type(error).__name__)
"""

SEGFAULT = "recurses" if sys.version_info < (3, 12) else "reads_address_zero"  # later ones survive the first
PHASES = {"aborts": "tracing", SEGFAULT: "tracing", "calls_back": "running"}


def environments(folder: Path) -> list[Path]:
    """Return the cache's directories of environments."""
    return [path for path in (folder / "cache").iterdir() if path.name != "daemons"]


@pytest.fixture(autouse=True)
def own_cache(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Strikes and journals of this test alone: its daemons and clients inherit where they are kept."""
    for name, path in (("JITSERVER_CACHE_DIR", short_path / "cache"), ("XDG_RUNTIME_DIR", short_path / "run")):
        path.mkdir()
        monkeypatch.setenv(name, str(path))
    (short_path / "gate").touch()


@pytest.fixture
def serve(serve: Any, short_path: Path) -> Any:
    """Starts a daemon of this test's environment."""
    return functools.partial(serve, JITSERVER_CACHE_DIR=str(short_path / "cache"))


@pytest.fixture
def start(start_client: Any, short_path: Path) -> Any:
    """Starts a client that calls one of the functions, until it is ready."""

    def started(daemon: Any, source: str = CALLS, **env: str) -> Any:
        functions = FUNCTIONS.replace("GATE", str(short_path / "gate")).replace("WAIT", str(short_path / "wait"))
        functions = functions.replace("CALLED", str(short_path / "called"))
        client = start_client(daemon, functions + source, **env)
        client.says("ready")
        return client

    return started


@pytest.fixture
def suspects(short_path: Path) -> Callable[[], dict[str, list[str]]]:
    """The phases for which the functions have strikes, by name."""

    def found() -> dict[str, list[str]]:
        [part] = environments(short_path)
        return {it.name: [strike.phase for strike in it.strikes] for it in Strikes(part).all().values()}

    return found


def journals() -> list[Path]:
    return list(runtime_directory().glob("*.journal"))


@jitclient.jit
def innocent(x: Any) -> Any:
    return x * 3


@pytest.mark.parametrize("function", PHASES)
def test_the_fourth_time_it_is_refused_and_the_daemon_lives(
    serve: Any, start: Any, client_of: Any, cli: Any, suspects: Any, short_path: Path, function: str
) -> None:
    with serve() as daemon:
        # Each call is tried twice.
        env = {"FUNCTION": function, "CALLS": "2", "JITSERVER_AUTOSTART": "1"}
        client = start(daemon, **env)
        client.says("DaemonLost", "refused")
        refusal, explanation = json.loads(client.process.stdout.readline())
        assert f"the daemon refuses {function}(f32[]) after it crashed 3 times while {PHASES[function]} it" in refusal
        assert explanation == f"{function}(f32[]): {refusal}"
        assert client.ends().count("started a daemon") == 3
        [pid] = daemon.pids()
        with client_of(daemon.address):
            assert float(innocent(np.float32(2))) == 6
        assert suspects() == {function: [PHASES[function]] * 3}
        elsewhere = start(daemon, FUNCTION=function, JITSERVER_FALLBACK="local")
        elsewhere.says("2.0")
        assert f"{function} runs in this process, on the cpu: {refusal}" in elsewhere.ends()

        key = refusal.partition("cache rm ")[2].rstrip("`")
        done = cli("cache", "rm", key, env={"JITSERVER_ADDRESS": daemon.address})
        assert (done.returncode, done.stdout) == (0, "removed 1 program\n"), done.stderr
        assert suspects() == {}
        if function == "calls_back":  # what ended the daemon is over
            (short_path / "gate").unlink()
            start(daemon).says("2.0")
        assert daemon.pids() == [pid]


def test_while_it_is_not_refused_yet_a_call_that_cannot_have_begun_runs_here(serve: Any, start: Any) -> None:
    with serve() as daemon:
        client = start(daemon, FUNCTION="aborts", JITSERVER_AUTOSTART="1", JITSERVER_FALLBACK="local")
        client.says("2.0")
        assert client.ends().count("started a daemon") == 1


def test_daemons_that_are_killed_refuse_nothing_but_one_that_always_exits_is_refused_in_the_end(
    serve: Any, start: Any, short_path: Path
) -> None:
    deaths = MAX_STRIKES * KILLS_PER_STRIKE
    with serve() as daemon:
        # Each call is tried twice.
        env = {"FUNCTION": "exits", "CALLS": str(deaths // 2 + 1), "JITSERVER_AUTOSTART": "1"}
        client = start(daemon, **env)
        client.says(*["DaemonLost"] * (deaths // 2), "refused")
        assert f"after it was killed {deaths} times while tracing it" in client.process.stdout.readline()
        assert client.ends().count("started a daemon") == deaths


def test_a_refusal_holds_for_all_daemons_of_an_environment(serve: Any, start: Any) -> None:
    for _ in range(3):  # one after another, each at an address of its own, and started by no client
        with serve() as daemon:
            start(daemon, FUNCTION="aborts").says("DaemonUnavailable")
            assert daemon.process.wait(60) == -signal.SIGABRT
    with serve() as daemon:
        client = start(daemon, FUNCTION="aborts")
        client.says("refused")
        assert "3 times while tracing it" in client.process.stdout.readline()
        assert daemon.process.poll() is None
    assert journals() == []


def test_who_only_ran_beside_it_is_forgiven_when_it_runs_through(
    serve: Any, start: Any, until: Any, suspects: Any, short_path: Path
) -> None:
    (short_path / "wait").touch()
    one_call = "    print(float(crashing(x)))"
    with serve() as daemon:
        bystander = start(daemon, one_call, JITSERVER_AUTOSTART="1")
        until((short_path / "called").exists, "the call to be under way")
        start(daemon, FUNCTION="aborts_with_its_client")  # or it would try again, with the daemon that the other starts
        guilty = {"aborts_with_its_client": ["tracing"]}
        until(lambda: suspects() == {"calls_back": ["running"], **guilty}, "both to get a strike")
        (short_path / "gate").unlink()
        bystander.says("2.0")
        bystander.ends()
        assert suspects() == guilty


def test_a_compiler_that_ends_the_daemon_is_noted_as_such(serve: Any, start: Any, until: Any, suspects: Any) -> None:
    with serve() as daemon:
        start(daemon, FUNCTION="takes_long_to_compile")
        until(lambda: daemon.phases() == ["compiling"], "the compile to be under way")
        daemon.process.send_signal(signal.SIGSEGV)
        daemon.process.wait()
    with serve():
        assert suspects() == {"takes_long_to_compile": ["compiling"]}


@pytest.mark.parametrize("crashes", [1, 2])
def test_what_twice_ended_a_daemon_while_it_was_loaded_is_made_anew(
    serve: Any, client_of: Any, cli: Any, suspects: Any, short_path: Path, crashes: int
) -> None:
    with serve() as daemon, client_of(daemon.address):
        assert float(innocent(np.float32(2))) == 6
        [entry] = json.loads(cli("cache", "ls", "--json", env={"JITSERVER_ADDRESS": daemon.address}).stdout)
    [part] = environments(short_path)
    for _ in range(crashes):
        Strikes(part).add([Work("loading", entry["key"], entry["label"])], 1.0)
    with serve() as daemon, client_of(daemon.address):
        assert float(innocent(np.float32(2))) == 6
        counts = daemon.counts()
    assert (counts.restores, counts.traces) == ((1, 0) if crashes == 1 else (0, 1))
    assert suspects() == ({} if crashes == 1 else {"innocent": ["loading"] * 2})


def test_what_twice_ended_a_daemon_while_it_was_stored_is_kept_without_its_executable(
    serve: Any, client_of: Any, short_path: Path
) -> None:
    def stored() -> Any:
        with serve() as daemon, client_of(daemon.address):
            assert float(innocent(np.float32(2))) == 6
        [part] = environments(short_path)
        with contextlib.closing(Catalog(part / CATALOG, writes=False)) as catalog:
            [info] = catalog.infos("")
            return catalog.find(info.key)

    first = stored()
    assert first.executable
    [part] = environments(short_path)
    shutil.rmtree(part)
    part.mkdir(mode=0o700)
    for _ in range(2):
        Strikes(part).add([Work("storing", first.key, first.info.label)], 1.0)
    again = stored()
    assert (again.key, again.executable, bool(again.capture)) == (first.key, "", True)


@pytest.mark.parametrize(("number", "left"), [(signal.SIGTERM, {}), (signal.SIGKILL, {"calls_back": ["running"]})])
def test_a_daemon_that_means_to_end_leaves_no_strike(
    serve: Any, start: Any, until: Any, suspects: Any, short_path: Path, number: int, left: dict[str, list[str]]
) -> None:
    (short_path / "wait").touch()
    with serve("--drain", "0.2") as daemon:
        client = start(daemon)
        until((short_path / "called").exists, "the call to be under way")
        os.kill(daemon.process.pid, number)
        client.says("DaemonUnavailable")
        daemon.process.wait(60)
    with serve():
        assert suspects() == left
    assert journals() == []
