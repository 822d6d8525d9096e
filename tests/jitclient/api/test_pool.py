"""`jitclient.pool` with workers on this machine: what an executor promises, and what happens when workers die.

Functions are made inside the tests, and so travel by value: a worker would import those of this module with pytest.
"""

import concurrent.futures
import gc
import importlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jitclient
from jitclient.api import switch
from jitclient.errors import HostUnreachable, RemoteError, SettingsError, WorkerLost
from jitclient.pools import versions

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def pool(shared_daemon: str) -> Iterator[jitclient.Pool]:
    """Two workers, for the tests that do not end one."""
    with jitclient.pool("local:2") as made:
        yield made


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    """The path of a pipe that a task waits at when it opens it to read, and a function that lets it go on."""
    path = tmp_path / "gate"
    os.mkfifo(path)
    opened: list[int] = []

    def release() -> None:
        opened.append(os.open(path, os.O_RDWR))

    yield str(path), release
    for each in opened:
        os.close(each)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


# ---- as other executors


def test_it_is_an_executor_whose_tasks_run_in_other_processes(pool: jitclient.Pool) -> None:
    futures = [pool.submit(lambda x, *, y: (x + y, os.getpid()), number, y=1) for number in range(4)]
    done, _ = concurrent.futures.wait(futures)
    assert {future.result()[0] for future in done} == {1, 2, 3, 4}
    assert os.getpid() not in {future.result()[1] for future in done}


def test_a_map_has_its_values_in_order(pool: jitclient.Pool) -> None:
    assert list(pool.map(lambda x, y: x * y, range(1000), range(1000))) == [x * x for x in range(1000)]
    assert list(pool.map(lambda x: x + 1, range(10), chunksize=4)) == list(range(1, 11))


def test_a_map_with_a_buffer_reads_no_further_than_that(pool: jitclient.Pool) -> None:
    read = []

    def arguments() -> Iterator[int]:
        for number in range(20):
            read.append(number)
            yield number

    values = pool.map(lambda x: -x, arguments(), buffersize=3)
    assert len(read) == 3
    assert next(values) == 0
    assert len(read) <= 5
    assert list(values) == [-x for x in range(1, 20)]


def test_arguments_are_those_at_the_time_of_the_call(pool: jitclient.Pool) -> None:
    rates = []
    futures = []
    for number in range(50):
        rates.append(number)
        futures.append(pool.submit(len, rates))
    assert [future.result() for future in futures] == list(range(1, 51))


def test_an_exception_has_the_traceback_of_the_worker_as_its_cause(pool: jitclient.Pool) -> None:
    def fail(x: int) -> None:
        raise ZeroDivisionError(f"no {x}")

    with pytest.raises(ZeroDivisionError, match="no 3") as raised:
        pool.submit(fail, 3).result()
    text = str(raised.value.__cause__)
    assert f'File "{__file__}"' in text
    assert "in fail" in text
    assert text.count("File ") == 1
    values = pool.map(lambda x: 1 // x, [1, 0, 1])
    assert next(values) == 1
    with pytest.raises(ZeroDivisionError) as raised:
        next(values)
    assert [entry.path for entry in raised.traceback] == [Path(__file__)]


def test_results_and_exceptions_that_cannot_be_pickled_are_errors_of_their_call_alone(pool: jitclient.Pool) -> None:
    def odd(x: int) -> Any:
        class Odd(Exception):
            def __init__(self, a: int, b: int) -> None:
                super().__init__(a + b)

        if x == 0:
            raise Odd(1, 2)
        return threading.Lock() if x == 1 else x

    futures = [pool.submit(odd, x) for x in range(3)]
    with pytest.raises(RemoteError, match=r"Odd: 3"):
        futures[0].result()
    with pytest.raises(TypeError, match="pickle") as raised:
        futures[1].result()
    assert any("odd returned this value" in note for note in raised.value.__notes__)
    assert futures[2].result() == 2


def test_a_task_that_exits_raises_in_the_program(pool: jitclient.Pool) -> None:
    with pytest.raises(SystemExit):
        pool.submit(sys.exit, 3).result()
    assert pool.submit(abs, -1).result() == 1


def test_what_cannot_be_pickled_is_refused_at_once(pool: jitclient.Pool) -> None:
    with pytest.raises(TypeError, match="pickle"):
        pool.submit(abs, threading.Lock())
    with pytest.raises(TypeError, match="pickle"):
        pool.map(abs, [threading.Lock()])


def test_tasks_that_wait_can_be_cancelled(pool: jitclient.Pool, gate: tuple[str, Callable[[], None]]) -> None:
    path, release = gate
    first = [pool.submit(lambda path: Path(path).open("rb").close(), path) for _ in range(2)]
    waiting = pool.submit(abs, -1)
    assert waiting.cancel()
    with pytest.raises(TimeoutError):
        next(pool.map(abs, [1], timeout=0.01))
    release()
    concurrent.futures.wait(first)
    with pytest.raises(concurrent.futures.CancelledError):
        waiting.result()
    assert pool.submit(abs, -2).result() == 2


def test_a_shutdown_finishes_or_cancels(
    shared_daemon: str, gate: tuple[str, Callable[[], None]], until: Callable[..., Any]
) -> None:
    path, release = gate
    pool = jitclient.pool("local:1")
    running = pool.submit(
        lambda path: Path(f"{path}-begun").touch() or Path(path).open("rb").close() or os.getpid(), path
    )
    until(Path(f"{path}-begun").exists, "the task to begin")
    waiting = pool.submit(abs, -1)
    until(lambda: len(sum(pool.client.processing().values(), ())) == 2, "the scheduler to know both tasks")
    pool.shutdown(wait=False, cancel_futures=True)
    assert waiting.cancelled()
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.submit(abs, -1)
    release()
    pid = running.result()
    pool.shutdown()
    until(lambda: not alive(pid), "the worker to end")


def test_a_pool_that_is_dropped_finishes_without_the_thread_that_drops_it(
    shared_daemon: str, gate: tuple[str, Callable[[], None]], until: Callable[..., Any]
) -> None:
    path, release = gate
    pool = jitclient.pool("local:1")
    running = pool.submit(
        lambda path: Path(f"{path}-begun").touch() or Path(path).open("rb").close() or os.getpid(), path
    )
    until(Path(f"{path}-begun").exists, "the task to begin")
    waiting = pool.submit(abs, -1)
    del pool
    gc.collect()
    assert not running.done()
    release()
    assert waiting.result() == 1
    until(lambda: not alive(running.result()), "the worker to end")


def test_an_interrupt_ends_what_runs(
    shared_daemon: str, gate: tuple[str, Callable[[], None]], until: Callable[..., Any]
) -> None:
    path, _ = gate
    pool = jitclient.pool("local:1")
    pid = pool.submit(os.getpid).result()
    running = pool.submit(lambda path: Path(f"{path}-begun").touch() or Path(path).open("rb").close(), path)
    until(Path(f"{path}-begun").exists, "the task to begin")
    with pytest.raises(KeyboardInterrupt), pool:
        raise KeyboardInterrupt
    with pytest.raises(concurrent.futures.CancelledError):
        running.result()
    until(lambda: not alive(pid), "the worker to end")


def test_the_initializer_runs_first_and_its_failure_is_the_pools(shared_daemon: str) -> None:
    def prepare(value: str) -> None:
        if not value:
            raise ValueError("empty")
        os.environ["PREPARED"] = value

    with jitclient.pool("local:1", initializer=prepare, initargs=("yes",)) as pool:
        assert pool.submit(lambda: os.environ.get("PREPARED")).result() == "yes"
    with pytest.raises(ValueError, match="empty"):
        jitclient.pool("local:1", initializer=prepare, initargs=("",))


# ---- code, classes, settings


PROGRAM = """
    import json, sys
    import jitclient
    import settings_of_it
    from package import part

    class Setting:
        def __init__(self, rate):
            self.rate = rate

    class Diverged(Exception):
        pass

    @jitclient.jit
    def step(x):
        return x * part.FACTOR

    def train(setting):
        from package.late import name
        if setting.rate < 0:
            raise Diverged(setting)
        return settings_of_it.Result(name, float(step(setting.rate)), setting)

    if __name__ == "__main__":
        with jitclient.pool("local:1") as pool:
            result = pool.submit(train, Setting(2.0)).result()
            print("a print of the program")
            pool.submit(print, "a print of a task").result()
            try:
                pool.submit(train, Setting(-1.0)).result()
            except Diverged as error:
                diverged = error.args[0]
            here = type(result) is settings_of_it.Result and type(result.setting) is Setting is type(diverged)
            print(json.dumps([result.name, result.value, here, sys.argv[1:], jitclient.function_key(step)]))
"""


def test_modules_and_classes_of_the_program_are_the_same_on_both_sides(
    daemon: str, run_script: Callable[..., Any], tmp_path: Path, counts: Callable[..., dict[str, Any]]
) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("from . import part\n")
    (tmp_path / "package" / "part.py").write_text("FACTOR = 3\n")
    (tmp_path / "package" / "late.py").write_text("name = __name__\n")
    (tmp_path / "settings_of_it.py").write_text(
        "import typing\n\nclass Result(typing.NamedTuple):\n    name: str\n    value: float\n    setting: object\n"
    )
    first = run_script(PROGRAM)
    assert first[:3] == ["package.late", 6.0, True]
    before = counts(daemon)
    assert run_script(PROGRAM) == first
    after = counts(daemon)
    # The second run finds the program that a worker of the first one made.
    assert after["compiles"] == before["compiles"]
    assert after["traces"] == before["traces"]


def test_modules_of_the_program_come_before_those_of_the_host(
    shared_daemon: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Python's own has this name, too, and nothing imports that one.
    (tmp_path / "tabnanny.py").write_text("def value():\n    return 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("tabnanny")
    try:
        with jitclient.pool("local:1") as pool:
            assert pool.submit(module.value).result() == 1
    finally:
        del sys.modules["tabnanny"]


def test_settings_of_jax_and_install_hold_on_the_workers(shared_daemon: str) -> None:
    import jax

    def observe(x: float) -> Any:
        import jax

        jitted = jax.jit(lambda x: x + 1)
        return type(jitted).__name__, str(np.asarray(jitted(x)).dtype)

    with jitclient.install(), jax.enable_x64(True):
        assert switch.in_force()
        with jitclient.pool("local:1") as pool:
            assert pool.submit(observe, 1.0).result() == ("RemoteFunction", "float64")


# ---- data


def test_kept_data_is_loaded_once_on_a_host_and_found_by_the_next_pool(daemon: str, tmp_path: Path) -> None:
    log = str(tmp_path / "loads")

    def load() -> Any:
        import os

        os.write(os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT), b".")
        return {"x": np.arange(4.0, dtype=np.float32)}

    def use(number: int, data: Any) -> Any:
        return type(data["x"]).__name__, float(data["x"].sum()) + number

    for _ in range(2):
        with jitclient.pool("local:2") as pool:
            data = pool.keep("pool test", load, deps=[])
            assert list(pool.map(use, range(4), [data] * 4)) == [("Array", 6.0 + number) for number in range(4)]
    assert Path(log).read_text() == "."
    with pytest.raises(TypeError, match="pass a function"):
        pool.keep("x", 3)  # type: ignore[arg-type]


def test_a_result_on_the_daemon_comes_as_its_value(daemon: str, pool: jitclient.Pool) -> None:
    value = pool.submit(lambda: jitclient.device_put(np.arange(3.0, dtype=np.float32))).result()
    assert not isinstance(value, jitclient.Array)
    assert np.asarray(value).tolist() == [0, 1, 2]


# ---- faults


def test_a_worker_that_is_killed_in_a_map_of_100_costs_nothing_but_time(shared_daemon: str, tmp_path: Path) -> None:
    def work(number: int) -> tuple[int, int]:
        import os
        import signal
        from pathlib import Path

        if number == 40 and not (Path(folder) / "killed").exists():
            (Path(folder) / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return number, os.getpid()

    folder = str(tmp_path)
    with jitclient.pool("local:2") as pool:
        values = list(pool.map(work, range(100)))
    assert (tmp_path / "killed").exists()
    assert [number for number, _ in values] == list(range(100))


def test_a_poisoned_task_fails_alone(shared_daemon: str, capfd: pytest.CaptureFixture[str]) -> None:
    def poisoned(number: int) -> int:
        if number == 3:
            print("the last words", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    with jitclient.pool("local:2", retries=1) as pool:
        futures = [pool.submit(poisoned, number) for number in range(8)]
        assert [future.result() for future in futures if future is not futures[3]] == [0, 1, 2, 4, 5, 6, 7]
        with pytest.raises(WorkerLost, match=r"^poisoned: its worker died 2 times"):
            futures[3].result()
    assert "the last words" in capfd.readouterr().err


def test_a_worker_that_hangs_is_left(shared_daemon: str, tmp_path: Path) -> None:
    marker = str(tmp_path / "stopped")

    def stop_once() -> int:
        if not Path(marker).exists():
            Path(marker).touch()
            os.kill(os.getpid(), signal.SIGSTOP)
        return os.getpid()

    with jitclient.pool("local:1", timeout=5) as pool:
        first = pool.submit(os.getpid).result()
        assert pool.submit(stop_once).result() != first


ORPHANS = """
    import os, sys, time
    import jitclient

    def work(path):
        import os, subprocess
        child = subprocess.Popen(["sleep", "1000"])
        with open(path, "w") as file:
            file.write(f"{os.getpid()} {child.pid}\\n")
        while True:
            pass

    pool = jitclient.pool("local:1")
    pool.submit(work, sys.argv[1])
    while not (os.path.exists(sys.argv[1]) and open(sys.argv[1]).read().endswith("\\n")):
        time.sleep(0.01)
    os.kill(os.getpid(), 9)
"""


def test_a_driver_that_is_killed_leaves_nothing_running(
    shared_daemon: str, tmp_path: Path, until: Callable[..., Any]
) -> None:
    program, pids = tmp_path / "program.py", tmp_path / "pids"
    program.write_text(textwrap.dedent(ORPHANS))
    done = subprocess.run(
        [sys.executable, str(program), str(pids), "kill"], capture_output=True, timeout=100, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    worker, child = map(int, pids.read_text().split())
    until(lambda: not alive(worker) and not alive(child), "the worker and its child to end")


def test_a_worker_of_another_version_is_refused(shared_daemon: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = {**versions.installed(), "jax": "0.0.1"}
    monkeypatch.setattr(versions, "installed", lambda: ours)
    with pytest.raises(jitclient.Incompatible, match=r"has different versions: jax is 0\.0\.1 here and .* there"):
        jitclient.pool("local:2")


def test_who_has_not_the_certificates_of_a_pool_does_not_reach_its_scheduler(pool: jitclient.Pool) -> None:
    import distributed

    address = pool.client.scheduler.address
    for other, security in [(address, distributed.Security.temporary()), (address.replace("tls", "tcp"), None)]:
        with pytest.raises(OSError, match=r"certificate does not match|Timed out|in <"):
            distributed.Client(other, security=security, timeout=3)
    assert pool.submit(abs, -1).result() == 1


def test_a_scheduler_that_does_not_answer_is_named() -> None:
    import dask

    refused = pytest.raises(HostUnreachable, match=r"no scheduler of Dask answers at tcp://127.0.0.1:9")
    with dask.config.set({"distributed.comm.timeouts.connect": "1s"}), refused:
        jitclient.pool("tcp://127.0.0.1:9")


@pytest.mark.parametrize("hosts", ["local", "local:0", "unix:/tmp/x", [], "ssh://", "tcp://a"])
def test_a_host_that_is_none_is_refused(hosts: Any) -> None:
    with pytest.raises(SettingsError):
        jitclient.pool(hosts)
