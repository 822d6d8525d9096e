"""The crash journal: programs in progress when a daemon died get strikes; those of a regular shutdown do not."""

import contextlib
import random
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jitserver.store import journal as journal_module
from jitserver.store.journal import EMPTY_SLOT, SLOT, Journal, mark, read
from jitserver.store.strikes import KILLS_PER_STRIKE, Strikes, Work

PREAMBLE = """
import os, signal, sys, threading
from pathlib import Path
from jitserver.store.journal import Journal, mark

folder = Path(sys.argv[1])
journal = Journal.create(folder, folder, memory_kills=7)
journal.report_crashes()

def die(number=signal.SIGSEGV):
    os.kill(os.getpid(), number)

"""


@pytest.fixture
def dies(tmp_path: Path) -> Callable[..., None]:
    """Runs the last moments of a daemon in a process, which must end with them."""

    def run(source: str, number: int = signal.SIGSEGV) -> None:
        with alone(tmp_path, source) as process:
            out, err = process.communicate(timeout=60)
        assert process.returncode == -number, f"{out}\n{err}"

    return run


@contextlib.contextmanager
def alone(folder: Path, source: str, before: str = "") -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-P", "-c", before + PREAMBLE + textwrap.dedent(source), str(folder)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def phases(folder: Path, memory_kills: int = 7) -> dict[str, list[str]]:
    """The phases of each program's strikes, as the next daemon sees them before it shuts down regularly."""
    begun = Journal.create(folder, folder, memory_kills)
    begun.end()
    return {key: [strike.phase for strike in suspect.strikes] for key, suspect in begun.strikes.all().items()}


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.suffix in (".journal", ".crash", ".new"))


# ---- marks


@pytest.mark.parametrize("label", ["step(f32[8], i32[])", "", "ü" * 200, "\udc80", "<lambda>(…)"])
def test_a_mark_can_be_read(label: str) -> None:
    made = mark("tracing", "ab" * 16, label)
    assert len(made) == SLOT
    found = read(made)
    assert found is not None
    assert found[:2] == ("tracing", "ab" * 16)
    assert label.startswith(found.label) or found.label == "?"


def test_an_incomplete_mark_is_ignored() -> None:
    old, new = mark("running", "ab" * 16, "old"), mark("running", "cd" * 16, "new")
    whole = Work("running", "ab" * 16, "old"), Work("running", "cd" * 16, "new")
    for cut in range(SLOT + 1):
        assert read(new[:cut] + old[cut:]) in (None, *whole)
    assert read(EMPTY_SLOT) is None
    assert read(b"\0" + old[1:]) is None


# ---- strikes


def test_a_program_in_progress_gets_a_strike_for_each_death(dies: Any, tmp_path: Path) -> None:
    for deaths in (1, 2, 3):
        dies("""
            with journal.recording("tracing", "a" * 32, "f(f32[])") as next_phase:
                next_phase("compiling")
                die()
        """)
        assert phases(tmp_path) == {"a" * 32: ["compiling"] * deaths}
        assert files(tmp_path) == []
    assert "crashed 3 times while compiling it" in Strikes(tmp_path).refusal("a" * 32)
    assert f"`jitserver cache rm {'a' * 12}`" in Strikes(tmp_path).refusal("a" * 32)


@pytest.mark.parametrize(
    "number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL], ids=str
)
def test_a_fatal_signal_is_a_strike_and_its_stacks_are_logged(
    dies: Any, tmp_path: Path, number: signal.Signals, caplog: pytest.LogCaptureFixture
) -> None:
    dies(f"""
        def crashes_here():
            die({int(number)})
        with journal.recording("compiling", "a" * 32, "f()"):
            crashes_here()
    """, number)  # fmt: skip
    assert phases(tmp_path) == {"a" * 32: ["compiling"]}
    suspect = Strikes(tmp_path).of("a" * 32)
    assert suspect is not None
    assert suspect.counted == 1
    assert "crashes_here" in caplog.text


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="this version ends such a descent with an exception")
def test_the_overflow_of_a_threads_stack_is_a_strike(dies: Any, tmp_path: Path) -> None:
    dies("""
        import ctypes
        from jitserver.system import alternate_stack
        def work():
            alternate_stack.install()
            with journal.recording("tracing", "a" * 32, "f()"):
                libc = ctypes.CDLL(None)
                compare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
                array = (ctypes.c_int * 2)()
                descend = compare(lambda *_: libc.qsort(array, 2, 4, descend) or 0)
                sys.setrecursionlimit(10**9)
                descend(None, None)  # each level takes some of the C stack
        threading.Thread(target=work).start()
    """)
    suspect = Strikes(tmp_path).of("a" * 32) if phases(tmp_path) else None
    assert suspect is not None
    assert suspect.counted == 1


def test_kills_from_outside_count_only_after_several_in_a_row(dies: Any, tmp_path: Path) -> None:
    def counted(memory_kills: int = 7) -> int:
        dies("""
            with journal.recording("compiling", "a" * 32, "f(f32[])"):
                die(signal.SIGKILL)
        """, signal.SIGKILL)  # fmt: skip
        assert phases(tmp_path, memory_kills)
        suspect = Strikes(tmp_path).of("a" * 32)
        assert suspect is not None
        return suspect.counted

    assert [counted() for _ in range(2 * KILLS_PER_STRIKE)] == [0, 0, 1, 1, 1, 2]
    Strikes(tmp_path).forgive("a" * 32, "compiling")
    assert counted() == 0
    assert counted(memory_kills=8) == 1, "the kernel killed a process for lack of memory meanwhile"
    assert files(tmp_path) == []


def test_each_thread_is_noted_and_a_program_gets_one_strike_for_each_death(dies: Any, tmp_path: Path) -> None:
    dies("""
        begun = threading.Barrier(9)
        def work(number):
            with journal.recording("running", str(number // 2) * 32, "f()"):
                begun.wait()
                threading.Event().wait()
        for number in range(8):
            threading.Thread(target=work, args=(number,), daemon=True).start()
        begun.wait()
        die()
    """)
    assert phases(tmp_path) == {str(n) * 32: ["running"] for n in range(4)}


def test_a_phase_that_had_ended_gets_no_strike(dies: Any, tmp_path: Path) -> None:
    dies("""
        for error in (None, ValueError()):
            try:
                with journal.recording("tracing", "a" * 32, "f()") as next_phase:
                    with journal.recording("restoring", "b" * 32, "g()"):
                        pass
                    next_phase("compiling")
                    if error:
                        raise error
            except ValueError:
                pass
        slot = journal.thread_state.slot
        slot[:] = mark("running", "c" * 32, "h()")
        slot[0] = 0
        die()
    """)
    assert phases(tmp_path) == {}
    assert files(tmp_path) == []


def test_after_nested_work_the_outer_work_is_noted_again(dies: Any, tmp_path: Path) -> None:
    dies("""
        with journal.recording("tracing", "a" * 32, "f()"):
            with journal.recording("restoring", "b" * 32, "g()"):
                pass
            die()
    """)
    assert phases(tmp_path) == {"a" * 32: ["tracing"]}


def test_a_regular_shutdown_gives_no_strikes(tmp_path: Path) -> None:
    source = """
        with journal.recording("tracing", "a" * 32, "f()"):
            journal.end()
            journal.end()
            os._exit(3)
    """
    with alone(tmp_path, source) as process:
        assert process.wait(60) == 3
    assert files(tmp_path) == []
    assert phases(tmp_path) == {}


def test_the_journal_of_a_live_daemon_is_not_counted(tmp_path: Path) -> None:
    source = """
        with journal.recording("tracing", "a" * 32, "f()"):
            print("begun", flush=True)
            sys.stdin.read()
    """
    with alone(tmp_path, source) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        assert phases(tmp_path) == {}
        assert len(files(tmp_path)) == 2
        process.kill()
        process.wait(60)
        assert phases(tmp_path) == {"a" * 32: ["tracing"]}
    assert files(tmp_path) == []


def test_eight_concurrent_starts_count_a_death_once(dies: Any, tmp_path: Path) -> None:
    dies("""
        with journal.recording("tracing", "a" * 32, "f()"):
            die()
    """)
    with contextlib.ExitStack() as stack:
        started = [stack.enter_context(alone(tmp_path, "journal.end()")) for _ in range(8)]
        assert [process.wait(60) for process in started] == [0] * 8
    assert phases(tmp_path) == {"a" * 32: ["tracing"]}


def test_each_folder_of_the_cache_has_its_own_journals(dies: Any, tmp_path: Path) -> None:
    dies("""
        with journal.recording("tracing", "a" * 32, "f()"):
            die()
    """)
    (tmp_path / "other").mkdir()
    other = Journal.create(tmp_path, tmp_path / "other")
    other.end()
    assert other.strikes.of("a" * 32) is None
    assert len(files(tmp_path)) == 2
    assert phases(tmp_path) == {"a" * 32: ["tracing"]}


@pytest.mark.parametrize(
    "content",
    [b"", b"\1", random.Random(0).randbytes(SLOT * 64), mark("running", "a" * 32, "f()")[:-1]],
    ids=["empty", "one byte", "noise", "incomplete"],
)
def test_an_invalid_journal_is_removed(dies: Any, tmp_path: Path, content: bytes) -> None:
    dies("die()")
    [path] = tmp_path.glob("*.journal")
    path.write_bytes(content)
    assert phases(tmp_path) == {}
    assert files(tmp_path) == []


# ---- slots


def test_a_slot_is_reused_after_its_thread_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "_SLOTS", 5)  # the main thread has one
    journal = Journal.create(tmp_path, tmp_path)
    [path] = tmp_path.glob("*.journal")

    def noted() -> int:
        data = path.read_bytes()
        return sum(read(data[start : start + SLOT]) is not None for start in range(0, len(data), SLOT))

    for threads in (3, 4, 6):  # if there are more threads than slots, the others work without
        begun, done = threading.Barrier(threads + 1), threading.Event()

        def work(number: int, begun: threading.Barrier = begun, done: threading.Event = done) -> None:
            with journal.recording("running", str(number) * 32, "f()"):
                begun.wait(60)
                done.wait(60)

        started = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
        for thread in started:
            thread.start()
        begun.wait(60)
        assert noted() == min(threads, 4)
        done.set()
        for thread in started:
            thread.join(60)
        assert noted() == 0
    journal.end()


def test_without_a_journal_the_daemon_works(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    journal = Journal.create(tmp_path / "missing", tmp_path)
    with journal.recording("tracing", "a" * 32, "f()") as next_phase:
        next_phase("compiling")
    journal.end()
    assert [record.message.partition(":")[0] for record in caplog.records] == ["crash journal"]


def test_a_full_disk_is_found_at_the_start(tmp_path: Path) -> None:
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))"  # limits the size of files
    source = """
        with journal.recording("tracing", "a" * 32, "f()"):
            print(list(folder.iterdir()))
    """
    with alone(tmp_path, source, before=limit) as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "[]\n"), err
    assert err.startswith("crash journal: ")
