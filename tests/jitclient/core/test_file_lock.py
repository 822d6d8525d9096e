"""Locks on files: who has one, who waits, and what cannot be a lock file."""

import os
import threading
from pathlib import Path

import pytest

from jitclient.core import file_lock
from jitclient.errors import DaemonUnavailable


@pytest.mark.parametrize(("held", "wanted"), [(False, False), (False, True), (True, False), (True, True)])
def test_only_shared_locks_go_together(tmp_path: Path, held: bool, wanted: bool) -> None:
    with file_lock.open_lock(tmp_path / "lock") as other, file_lock.open_lock(tmp_path / "lock") as own:
        assert file_lock.try_lock(other, shared=held)
        assert file_lock.try_lock(own, shared=wanted) == (held and wanted)


def test_a_closed_file_is_not_locked(tmp_path: Path) -> None:
    with file_lock.open_lock(tmp_path / "lock") as own:
        with file_lock.open_lock(tmp_path / "lock") as other:
            file_lock.lock(other)
            waiting = threading.Thread(target=file_lock.lock, args=(own,))
            waiting.start()
            waiting.join(0.05)
            assert waiting.is_alive()
        waiting.join()
        with file_lock.open_lock(tmp_path / "lock") as other:
            assert not file_lock.try_lock(other)


def test_a_link_and_a_pipe_without_a_writer_hang_nobody(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DaemonUnavailable, match="cannot open the lock file"):
        file_lock.open_lock(tmp_path / "link")
    assert not (tmp_path / "elsewhere").exists()
    os.mkfifo(tmp_path / "pipe")
    with file_lock.open_lock(tmp_path / "pipe", "r"):
        pass
