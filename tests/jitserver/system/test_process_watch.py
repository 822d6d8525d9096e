"""Watching processes, which are identified for ever."""

import os
import subprocess
import sys
from collections.abc import Iterator

import msgspec
import pytest

from jitserver.system import process_watch
from jitserver.system.process_watch import Process, ProcessWatch, process_with_id

from ...descriptors import open_descriptors


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


def test_a_process_is_identified_across_daemons(child: subprocess.Popen[bytes]) -> None:
    sent = msgspec.msgpack.decode(msgspec.msgpack.encode(process_with_id(child.pid)), type=Process)
    watch = ProcessWatch.restored(sent)
    assert not watch.has_exited()
    child.kill()
    child.wait()
    assert watch.has_exited()
    watch.close()


def test_another_process_with_the_same_id_is_distinguished(child: subprocess.Popen[bytes]) -> None:
    before = process_with_id(child.pid)
    for born in ("another boot " + before.born.split()[-1], before.born + "0"):
        watch = ProcessWatch.restored(Process(child.pid, born))
        assert watch.has_exited()
        watch.close()


def test_a_process_that_had_ended_before_is_over(child: subprocess.Popen[bytes]) -> None:
    name = process_with_id(child.pid)
    child.kill()
    child.wait()
    assert ProcessWatch.restored(name).has_exited()


def test_a_process_that_cannot_be_watched_is_not_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_watch, "_pidfd_of", lambda pid: None)
    unknown = Process(0, "")
    assert process_with_id(0) == unknown
    assert not ProcessWatch.restored(unknown).has_exited()


def test_watching_leaves_no_descriptors() -> None:
    before = open_descriptors()
    for _ in range(10):
        watch = ProcessWatch.restored(process_with_id(os.getpid()))
        assert not watch.has_exited()
        watch.close()
        watch.close()
        assert not watch.has_exited()
    assert open_descriptors() <= before


def test_a_process_whose_descriptor_others_closed_is_not_over(child: subprocess.Popen[bytes]) -> None:
    watch = ProcessWatch(child.pid)
    assert watch._pidfd is not None
    os.close(watch._pidfd)
    assert not watch.has_exited()


def test_a_program_of_many_lines_has_a_name_of_one() -> None:
    with subprocess.Popen(
        [sys.executable, "-u", "-c", "print(1)\n\nif True:\n    input()"], stdin=-1, stdout=-1
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"1\n"
        assert process_watch.program_of(child.pid) == "-c print(1) if True: input()"
        child.communicate(b"\n")
