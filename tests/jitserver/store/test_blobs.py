"""Bytes by their digest."""

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jitserver.store import checked_files
from jitserver.store.blobs import Blobs


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return Blobs(tmp_path / "blobs", tmp_path / "quarantine")


def file_of(folder: Path, digest: str) -> Path:
    [found] = (folder / "blobs").glob(f"*/{digest}")
    return found


def age(path: Path, monkeypatch: pytest.MonkeyPatch, days: float) -> None:
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + days * 24 * 3600)


def test_equal_bytes_are_there_once(blobs: Blobs, tmp_path: Path) -> None:
    one, same, other = blobs.put(b"one"), blobs.put(b"one"), blobs.put(b"other")
    assert one == same != other
    assert bytes(blobs.get(one) or b"") == b"one"
    assert len([*(tmp_path / "blobs").glob("*/*")]) == 2
    blobs.remove(one)
    blobs.remove(one)
    assert blobs.get(one) is None


@pytest.mark.parametrize("damage", [b"", b"short", b"x" * 100])
def test_damaged_bytes_are_moved_aside_with_a_warning_and_can_be_put_again(
    blobs: Blobs, tmp_path: Path, caplog: Any, damage: bytes
) -> None:
    digest = blobs.put(b"one")
    file_of(tmp_path, digest).write_bytes(damage)
    assert blobs.get(digest) is None
    assert "moved to" in caplog.text
    assert (tmp_path / "quarantine" / digest).read_bytes() == damage
    assert blobs.put(b"one") == digest
    assert bytes(blobs.get(digest) or b"") == b"one"


def test_swapped_files_are_moved_aside(blobs: Blobs, tmp_path: Path, caplog: Any) -> None:
    one, other = blobs.put(b"one"), blobs.put(b"other")
    paths = [file_of(tmp_path, digest) for digest in (one, other)]
    contents = [path.read_bytes() for path in paths]
    for path, content in zip(paths, reversed(contents), strict=True):
        path.write_bytes(content)
    assert blobs.get(one) is None
    assert blobs.get(other) is None
    assert caplog.text.count("has the content of another file") == 2
    assert blobs.put(b"one") == one
    assert bytes(blobs.get(one) or b"") == b"one"


def make_link(path: Path) -> None:
    path.symlink_to("/dev/zero")


def make_link_to_whole_file(path: Path) -> None:
    whole = path.with_name("whole")
    checked_files.write(whole, [b"one"])
    path.symlink_to(whole)


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(os.path.relpath(path))


def make_sparse(path: Path) -> None:
    with open(path, "wb") as file:
        file.truncate(1 << 40)


@pytest.mark.parametrize(
    "make",
    [make_link, make_link_to_whole_file, os.mkfifo, make_socket, Path.mkdir, make_sparse],
    ids=lambda f: f.__name__,
)
def test_only_regular_files_of_the_known_size_are_read(
    blobs: Blobs, tmp_path: Path, caplog: Any, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], object]
) -> None:
    monkeypatch.chdir(tmp_path)
    digest = blobs.put(b"one")
    path = file_of(tmp_path, digest)
    path.unlink()
    make(path)
    assert blobs.get(digest, len(b"one")) is None
    assert "was moved to" in caplog.text
    assert os.path.lexists(tmp_path / "quarantine" / digest)
    assert blobs.put(b"one") == digest
    make(path.with_name("beside"))
    assert bytes(blobs.get(digest, len(b"one")) or b"") == b"one"


@pytest.mark.parametrize("make", [make_link, os.mkfifo, Path.mkdir], ids=lambda f: f.__name__)
def test_what_is_in_the_way_of_a_file_is_moved_aside(
    blobs: Blobs, tmp_path: Path, make: Callable[[Path], object]
) -> None:
    digest = blobs.put(b"one")
    path = file_of(tmp_path, digest)
    path.unlink()
    make(path)
    blobs.put(b"one")
    assert bytes(blobs.get(digest) or b"") == b"one"
    path.unlink()
    path.parent.rmdir()
    path.parent.write_text("a file in place of a directory")
    assert blobs.get(digest) is None
    blobs.put(b"one")
    assert bytes(blobs.get(digest) or b"") == b"one"


def test_what_nobody_knows_is_swept_once_it_is_old(
    blobs: Blobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, unknown = blobs.put(b"known"), blobs.put(b"unknown")
    left = file_of(tmp_path, known).with_name(f".{known}.interrupted")
    left.write_bytes(b"half")
    assert blobs.sweep({known}) == 0  # another daemon may be about to write its row
    age(left, monkeypatch, 0.1)
    assert blobs.sweep({known}) == len(b"unknown") + 12 + len(b"half")
    assert blobs.get(known) is not None
    assert blobs.get(unknown) is None
    assert not left.exists()


def test_bytes_that_are_put_again_are_fresh(blobs: Blobs, tmp_path: Path) -> None:
    digest = blobs.put(b"one")
    os.utime(file_of(tmp_path, digest), (0, 0))
    blobs.put(b"one")
    assert file_of(tmp_path, digest).stat().st_mtime > time.time() - 100


def test_what_was_moved_aside_stays_for_days(blobs: Blobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = blobs.put(b"one")
    blobs.discard(digest)
    aside = tmp_path / "quarantine" / digest
    age(aside, monkeypatch, 6)
    assert blobs.sweep({}) == 0
    assert aside.exists()
    age(aside, monkeypatch, 2)
    assert blobs.sweep({}) > 0
    assert not aside.exists()
