"""The crash journal: programs in progress when a daemon died get strikes; those of a regular shutdown do not."""

import contextlib
import os
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
from jitserver.store.strikes import Strikes, Work

PREAMBLE = """
import os, signal, sys, threading
from pathlib import Path
from jitserver.store.journal import Journal, mark

folder = Path(sys.argv[1])
journal = Journal.create(folder, folder)

def die():
    os.kill(os.getpid(), signal.SIGKILL)

"""


@pytest.fixture
def dies(tmp_path: Path) -> Callable[[str], None]:
    """Runs the last moments of a daemon in a process, which must end with them."""

    def run(source: str) -> None:
        with alone(tmp_path, source) as process:
            out, err = process.communicate(timeout=60)
        assert process.returncode == -signal.SIGKILL, f"{out}\n{err}"

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


def phases(folder: Path) -> dict[str, list[str]]:
    """The phases of each program's strikes, as the next daemon sees them before it shuts down regularly."""
    begun = Journal.create(folder, folder)
    begun.end()
    return {key: [strike.phase for strike in suspect.strikes] for key, suspect in begun.strikes.all().items()}


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.suffix in (".journal", ".new"))


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
        assert len(files(tmp_path)) == 1
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
    assert len(files(tmp_path)) == 1
    assert phases(tmp_path) == {"a" * 32: ["tracing"]}


@pytest.mark.parametrize("content", [b"", b"\1", os.urandom(SLOT * 64), mark("running", "a" * 32, "f()")[:-1]])
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
