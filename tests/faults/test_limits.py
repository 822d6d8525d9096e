"""Processes at their limits: a daemon stays up and serves again; a client runs its calls or raises errors of ours."""

import _thread
import resource
from typing import Any

import pytest

from jitclient.core import events, progress, threads
from jitclient.core.tracebacks import is_of_loading
from jitclient.errors import DaemonUnavailable, loading
from jitclient.jaxside import memory, trace_state
from jitclient.wire.address import Address

pytestmark = pytest.mark.slow

DESCRIPTORS = 64


def test_the_limit_of_descriptors_is_survived(serve: Any, client_of: Any, until: Any, works: Any) -> None:
    with serve() as daemon:
        with client_of(daemon.address):
            works()
        before = daemon.holdings()
        resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
        crowd = [Address.parse(daemon.address).connect() for _ in range(2 * DESCRIPTORS)]

        def is_full() -> bool:
            return len(daemon.descriptors()) >= DESCRIPTORS

        until(is_full, "the descriptors to run out")
        assert daemon.process.poll() is None
        for sock in crowd:
            sock.close()
        with client_of(daemon.address):
            works()
        daemon.settles(before, until)


def test_what_a_daemon_lacks_is_an_error_of_ours(serve: Any, client_of: Any, works: Any) -> None:
    with serve() as daemon, client_of(daemon.address):
        of, kind = daemon.process.pid, resource.RLIMIT_NOFILE
        before = resource.prlimit(of, kind)
        resource.prlimit(of, kind, (3, before[1]))
        try:
            with pytest.raises(DaemonUnavailable, match=r"the daemon cannot answer: .*Too many open files"):
                works()
        finally:
            resource.prlimit(of, kind, before)
        works()


FULL = """
    import json, os, resource, warnings, numpy as np, jitclient
    from jitclient import errors
    {before}
    f = jitclient.jit(lambda x: x + 1)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    taken = []
    try:
        while True:
            taken.append(os.dup(0))
    except OSError:
        pass
    found = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for act in {calls}:
            try:
                found.append(act())
            except errors.DaemonUnavailable as error:
                found.append(str(error))
    for descriptor in taken:
        os.close(descriptor)
    print(json.dumps([found, [str(warning.message) for warning in caught], float(f(np.float32(2)))]))
"""

CALL = "lambda: float(f(np.float32(1)))"
PUT = "lambda: float(jitclient.device_put(np.float32(3)))"


def test_a_first_call_without_descriptors_raises_an_error_of_ours(daemon: str, run_script: Any) -> None:
    found, told, after = run_script(
        FULL.format(before="", calls=f"[{CALL}, {PUT}]"), env={"JITSERVER_FALLBACK": "local"}
    )
    assert all("Too many open files" in error for error in found)
    assert told == []
    assert after == 3


def test_without_descriptors_for_a_connection_calls_run_in_the_process(serve: Any, run_script: Any) -> None:
    before = "import jax; jax.numpy.zeros(1) + 1; jitclient.jit(lambda x: x)(np.float32(0))"
    before += "; jitclient.session.process.session().disconnect()"
    with serve() as daemon:
        env = {"JITSERVER_FALLBACK": "local", "JITSERVER_ADDRESS": daemon.address}
        found, told, after = run_script(FULL.format(before=before, calls=f"[{CALL}]"), env=env)
    assert found == [2]
    assert ["Too many open files" in text for text in told] == [True]
    assert after == 3


@pytest.mark.parametrize("error", [OSError(24, "Too many"), MemoryError("Too many"), ImportError("Too many")])
def test_code_that_cannot_be_loaded_is_an_error_of_ours(error: Exception) -> None:
    with pytest.raises(DaemonUnavailable, match="Too many"), loading():
        raise error


@pytest.mark.parametrize(
    ("needs", "is_ours"),
    [
        (["jitclient.lazy", "importlib"], True),
        (["jitclient.lazy", "library", "importlib"], True),  # what a module needs that ours needs
        (["jitclient.lazy", "user"], False),
        (["user", "importlib"], False),
    ],
)
def test_an_error_of_loading_is_told_from_one_of_the_users_code(needs: list[str], is_ours: bool) -> None:
    source, inner = "raise OSError(24, 'Too many open files')", {}
    for name in reversed(needs):  # each runs the next one
        code, inner = compile(source, f"<frozen {name}>", "exec"), {"__name__": name, **inner}
        source, inner = "exec(code, inner)", {"code": code, "inner": inner}
    with pytest.raises(OSError, match="Too many") as raised:
        exec(source, inner)
    assert is_of_loading(raised.value) == is_ours


def test_errors_of_ours_and_missing_modules_are_raised_as_they_are() -> None:
    for error in (DaemonUnavailable("none"), ModuleNotFoundError("No module named 'flax'")):
        with pytest.raises(type(error)) as raised, loading():
            raise error
        assert raised.value is error


def no_thread(*_: object) -> int:
    raise RuntimeError("can't start new thread")


@pytest.mark.parametrize("start", [no_thread, lambda *_: 1], ids=["no thread", "a thread that cannot begin"])
def test_without_threads_calls_are_right_all_the_same(monkeypatch: pytest.MonkeyPatch, start: Any) -> None:
    import jax

    made = jax.numpy.zeros(3) + 1
    monkeypatch.setattr(_thread, "start_new_thread", start)
    monkeypatch.setattr(threads, "_START_SECONDS", 0.01)
    for cached in (trace_state._state_of_a_fresh_thread, memory._results_are_new):
        cached.cache_clear()
    assert trace_state.is_active()  # so that the call runs here
    assert not memory.owns_xla_memory(made)
    monkeypatch.setattr(progress, "is_terminal", lambda: True)
    with progress.shown("f()", enabled=True):
        events.log.begin("tracing")
    monkeypatch.undo()
    assert not trace_state.is_active()
    assert memory.owns_xla_memory(made)
