"""The disk tier: within its bound, beside others, and on disks that fail."""

import dataclasses
import errno
import itertools
import os
import random
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jitserver.store import checked_files
from jitserver.store import disk as store_module
from jitserver.store.catalog import CATALOG, Catalog, Use
from jitserver.store.disk import Store
from jitserver.store.entry import OVERHEAD_BYTES, Entry, Stored
from jitserver.store.memory import MemoryTier
from jitserver.store.tiers import Tiers

MIB = 1 << 20


@pytest.fixture
def store(tmp_path: Path) -> Any:
    made = Store(tmp_path, 100 * MIB)
    yield made
    made.close()


def keys(store: Store) -> list[str]:
    return sorted(info.key for info in store.infos())


def files_of(folder: Path) -> list[Path]:
    return sorted((folder / "blobs").glob("*/*"))


def test_a_program_outlives_the_store_that_saved_it(store: Store, tmp_path: Path, stored: Callable[..., Any]) -> None:
    store.put(stored("a"), b"executable", b"capture")
    store.close()
    again = Store(tmp_path, 100 * MIB)
    found = again.get("a")
    assert found is not None
    assert bytes(again.blob(found.executable) or b"") == b"executable"
    assert bytes(again.blob(found.capture) or b"") == b"capture"
    assert found.components == stored("a").components
    assert found.info.disk_bytes == len(b"executable" + b"capture")
    assert again.get("b") is None
    assert again.blob("") is None
    again.close()


def test_equal_executable_and_capture_are_told_apart_from_none(store: Store, stored: Callable[..., Any]) -> None:
    store.put(stored("a"), b"same", b"same")
    store.put(stored("b"), b"", b"same")
    a, b = store.get("a"), store.get("b")
    assert a is not None
    assert b is not None
    assert a.executable == a.capture == b.capture
    assert b.executable == ""


def test_over_its_bound_what_is_worth_least_leaves(tmp_path: Path, stored: Callable[..., Any]) -> None:
    store = Store(tmp_path, 8 * MIB)  # 6 of them for programs
    store.put(stored("long", seconds=60.0), os.urandom(MIB), b"")
    store.put(stored("pinned", seconds=0.0, pinned=True), os.urandom(MIB), b"")
    for number in range(10):
        store.put(stored(f"short {number}", seconds=0.1, age=10.0 - number), os.urandom(MIB), b"")
    left = keys(store)
    assert {"long", "pinned", "short 9"} < set(left)
    assert "short 0" not in left
    assert store.nbytes <= 6 * MIB
    assert sum(path.stat().st_size for path in files_of(tmp_path)) <= 6 * MIB
    store.close()


def test_states_that_no_process_has_again_do_not_accumulate(store: Store, stored: Callable[..., Any]) -> None:
    store.put(stored("other", base="b", names=("p:other",), age=99.0))
    store.put(stored("pinned", base="b", names=("p:gain",), age=99.0, pinned=True))
    for n in range(20):
        store.put(stored(f"{n:02}", base="b", names=("p:gain",), age=50.0 - n))
    assert keys(store) == [*(f"{n}" for n in range(12, 20)), "other", "pinned"]


def test_programs_leave_for_what_is_beside_them_but_not_all(tmp_path: Path, stored: Callable[..., Any]) -> None:
    store = Store(tmp_path, 16 * MIB)  # 12 of them for programs
    for number in range(10):
        store.put(stored(f"{number}"), os.urandom(MIB), b"")
    assert len(keys(store)) == 10
    for beside, most in ((5 * MIB, 7 * MIB), (1 << 40, 3 * MIB)):
        store.other_bytes = lambda beside=beside: beside
        store.trim()
        assert most // 2 < store.nbytes <= most
    store.close()


def test_what_is_needed_stays_whatever_it_is_worth(tmp_path: Path, stored: Callable[..., Any]) -> None:
    store = Store(tmp_path, 8 * MIB, lambda key, recipe_of: key != "needed")
    store.put(stored("needed", seconds=0.0, age=100.0), os.urandom(MIB), b"")
    for number in range(10):
        store.put(stored(f"other {number}"), os.urandom(MIB), b"")
    assert "needed" in keys(store)
    store.remove(["needed"])
    assert "needed" not in keys(store)
    store.close()


def test_new_programs_are_kept_where_a_session_holds_all_others(tmp_path: Path, entry: Callable[..., Any]) -> None:
    memory = MemoryTier(8 * OVERHEAD_BYTES, 1 << 40)
    store = Store(tmp_path, 8 * MIB, memory.allow_eviction)
    writer = SimpleNamespace(add=lambda key, job: job())
    tiers = Tiers(memory, store, writer)  # type: ignore[arg-type]

    def keep(key: str, *holders: str) -> Entry:
        made = entry(key)
        made.holders.update(holders)
        stored = Stored(made.info, made.components, b"facts", b"request")
        return tiers.keep(made, stored, lambda: os.urandom(MIB // 4), key.encode())

    held = []
    for number in range(60):
        held.append(keep(f"held {number}", "a session"))
        assert store.nbytes <= 6 * MIB
        assert memory.nbytes <= 9 * OVERHEAD_BYTES
    for number in range(10):
        keep(f"new {number}")
    left = keys(store)
    assert {f"new {number}" for number in range(5, 10)} <= set(left)
    gone = [each for each in held if each.key not in left]
    assert len(gone) > 30
    for each in gone:
        assert memory.get(each.key) is each or memory.recipe(each.key).capture == each.key.encode()  # type: ignore[union-attr]
    store.close()


def test_evictions_are_one_line_a_minute(
    tmp_path: Path, stored: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    caplog.set_level("INFO")
    store, now = Store(tmp_path, MIB), [0.0]
    monkeypatch.setattr(store_module.time, "monotonic", lambda: now[0])
    for number in range(20):
        store.put(stored(f"{number}"), os.urandom(MIB // 4), b"")
    first = caplog.text.count("evicted")
    now[0] = 61.0
    for number in range(20):
        store.put(stored(f"later {number}"), os.urandom(MIB // 4), b"")
    assert (first, caplog.text.count("evicted")) == (1, 2)
    counts = [int(word) for word in re.findall(r"evicted (\d+) programs", caplog.text)]
    assert sum(counts) >= 15, "those of the minute before are in the next line"
    store.close()


def test_a_folder_that_somebody_deleted_is_made_again(tmp_path: Path, stored: Callable[..., Any]) -> None:
    folder = tmp_path / "cache" / "part"
    folder.mkdir(parents=True)
    store = Store(folder, 8 * MIB)
    store.put(stored("before"), b"executable", b"capture")
    shutil.rmtree(folder.parent)
    assert store.infos() == []
    store.put(stored("after"), b"executable", b"capture")
    assert keys(store) == ["after"]
    assert {path.stat().st_mode & 0o777 for path in (folder, folder.parent)} == {0o700}
    store.close()
    assert keys(Store(folder, 8 * MIB)) == ["after"]


def test_without_a_share_of_the_disk_nothing_is_kept(tmp_path: Path, stored: Callable[..., Any]) -> None:
    store = Store(tmp_path, 0)
    store.put(stored("a"), b"executable", b"capture")
    assert store.get("a") is None
    assert store.infos() == []
    store.collect()
    store.close()
    assert list(tmp_path.iterdir()) == []


def test_uses_are_written_down_together(store: Store, tmp_path: Path, stored: Callable[..., Any]) -> None:
    store.put(stored("a"), b"executable", b"")
    for moment in (10.0, 20.0):
        store.used(Use("a", 1, 0.5, time.time() + moment))
    assert store.infos()[0].hits == 0
    store.flush()
    reader = Catalog(tmp_path / CATALOG, writes=False)
    [info] = reader.infos()
    assert (info.hits, info.saved) == (2, 1.0)
    assert info.last_used > time.time()
    reader.close()


def test_what_is_removed_is_gone_from_the_disk(store: Store, tmp_path: Path, stored: Callable[..., Any]) -> None:
    store.put(stored("a"), b"executable a", b"capture")
    store.put(stored("b"), b"executable b", b"capture")
    store.remove(["a"])
    assert keys(store) == ["b"]
    assert len(files_of(tmp_path)) == 2
    store.remove(["b"])
    assert files_of(tmp_path) == []


def test_collecting_frees_what_no_row_names_and_tells_how_much(
    store: Store, tmp_path: Path, stored: Callable[..., Any]
) -> None:
    store.put(stored("a"), b"executable", b"")
    orphan = tmp_path / "blobs" / "ab" / ("ab" * 16)
    checked_files.write(orphan, [b"x" * 1000])
    for path in (orphan, *files_of(tmp_path)):
        os.utime(path, (0, 0))
    now = time.time()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time", lambda: now + 3600)
        assert store.collect() == 1012
    assert keys(store) == ["a"]
    assert len(files_of(tmp_path)) == 1


def test_compilations_are_bounded_too(tmp_path: Path) -> None:
    store = Store(tmp_path, 4 * MIB)
    store.compilations_directory.mkdir()
    for number in range(4):
        path = store.compilations_directory / f"{number}-cache"
        path.write_bytes(bytes(MIB // 2))
        os.utime(path, (number, number))
    assert store.collect() == MIB
    assert sorted(path.name for path in store.compilations_directory.iterdir()) == ["2-cache", "3-cache"]
    store.close()


# ---- disks that fail


class Disk:
    """A disk that fails while it is full."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = False
        sync = checked_files.sync
        monkeypatch.setattr(checked_files, "sync", lambda handle: self.check() or sync(handle))

    def check(self) -> None:
        if self.full:
            raise OSError(28, "No space left on device")


def test_a_full_disk_is_one_warning_and_a_disk_with_room_again_is_used(
    store: Store, stored: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    caplog.set_level("INFO")
    disk, clock = Disk(monkeypatch), itertools.count(0, 10)
    monkeypatch.setattr(store_module.time, "monotonic", lambda: float(next(clock)))
    store.put(stored("before"), b"1", b"")
    disk.full = True
    for number in range(8):
        store.put(stored(f"lost {number}"), b"%d" % number, b"")
    assert store.get("before") is not None  # reads still work
    assert caplog.text.count("disk cache: cannot use") == 1
    assert "No space left" in caplog.text
    disk.full = False
    for number in range(8):
        store.put(stored(f"after {number}"), b"%d" % number, b"")
    assert caplog.text.count("disk cache: works again") == 1
    assert "before" in keys(store)
    assert "after 7" in keys(store)
    assert not any(key.startswith("lost") for key in keys(store))


def read_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make SQLite see a disk on which no file can be created or changed, also as root."""
    connect = sqlite3.connect

    def connect_read_only(target: str, **options: Any) -> sqlite3.Connection:
        if "immutable" not in target:
            raise_cannot_open()
        return connect(target, **options)

    def raise_cannot_open() -> None:
        error = sqlite3.OperationalError("unable to open database file")
        error.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
        raise error

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(sqlite3, "connect", connect_read_only)
    monkeypatch.setattr(checked_files, "write", refuse)
    for name in ("mkdir", "replace", "unlink"):
        monkeypatch.setattr(Path, name, refuse)


def test_a_folder_that_can_only_be_read_is_read(
    tmp_path: Path, stored: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    store = Store(tmp_path, 100 * MIB)
    store.put(stored("a"), b"executable", b"")
    store.close()
    read_only(monkeypatch)
    again = Store(tmp_path, 100 * MIB)
    assert keys(again) == ["a"]
    found = again.get("a")
    assert found is not None
    assert bytes(again.blob(found.executable) or b"") == b"executable"
    again.put(stored("b"), b"executable", b"")
    again.used(Use("a", 1, 0.5, time.time()))
    again.flush()
    assert keys(again) == ["a"]
    assert caplog.text.count("disk cache: cannot use") == 1
    again.close()


def test_a_damaged_catalog_that_cannot_be_moved_is_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    (tmp_path / CATALOG).write_text("damaged" * 1000)
    read_only(monkeypatch)
    store = Store(tmp_path, 100 * MIB)
    assert [store.get("a") for _ in range(3)] == [None, None, None]
    assert caplog.text.count("disk cache:") == 1


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="mounts a file system")
def test_a_read_only_file_system_is_read(tmp_path: Path, stored: Callable[..., Any]) -> None:
    store = Store(tmp_path, 100 * MIB)
    store.put(stored("a"), b"executable", b"")
    store.close()
    script = "mount --bind . . && mount -o remount,bind,ro . && exec " + shlex.join([sys.executable, "-c", _READER])
    ran = subprocess.run(
        ["unshare", "-m", "sh", "-c", f"cd {shlex.quote(str(tmp_path))} && {script}"], capture_output=True, text=True
    )
    if "unshare" in ran.stderr or "mount:" in ran.stderr:
        pytest.skip(ran.stderr)
    assert ran.stdout.split() == ["executable", "Read-only"], ran.stderr


_READER = """
import pathlib
from jitserver.store.disk import Store
folder = pathlib.Path.cwd()
try:
    (folder / "new").mkdir()
except OSError as error:
    store = Store(folder, 1 << 30)
    print(bytes(store.blob(store.get("a").executable)).decode(), error.strerror.split()[0])
"""


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero")])
@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
def test_a_catalog_of_another_kind_is_moved_aside(
    tmp_path: Path, stored: Callable[..., Any], suffix: str, make: Callable[[Path], object]
) -> None:
    make(tmp_path / f"{CATALOG}{suffix}")
    store = Store(tmp_path, 100 * MIB)
    assert store.get("a") is None
    store.put(stored("a"), b"executable", b"")
    assert keys(store) == ["a"]
    store.close()


def test_storage_that_hangs_delays_no_look_up_and_no_close(
    store: Store, stored: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    store.put(stored("a"), b"executable", b"")
    answers, find, waiting = threading.Event(), Catalog.find, []

    def hang(*arguments: Any) -> Any:
        waiting.append(threading.get_ident())
        answers.wait()
        return find(*arguments)

    monkeypatch.setattr(Catalog, "find", hang)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(store_module, "_READ_SECONDS", 0.01)
            assert store.get("a") is None
        assert [store.get("a") for _ in range(10)] == [None] * 10
        store.used(Use("a", 1, 0.5, time.time()))
        assert store.put(stored("b"), b"executable", b"").info.disk_bytes == 0
        store.close()
        assert len(waiting) == 1
        assert caplog.text.count("disk cache: cannot use") == 1
    finally:
        answers.set()


@pytest.mark.parametrize(
    "content",
    [b"this was never a database " * 100, b"SQLite format 3\0" + bytes(range(256)) * 16],
    ids=["text", "a header and noise"],
)
def test_a_broken_catalog_is_moved_aside_with_one_warning_and_begun_anew(
    tmp_path: Path, stored: Callable[..., Any], caplog: Any, content: bytes
) -> None:
    (tmp_path / CATALOG).write_bytes(content)
    store = Store(tmp_path, 100 * MIB)
    assert store.get("a") is None
    store.put(stored("a"), b"executable", b"")
    assert keys(store) == ["a"]
    assert caplog.text.count("the cache starts empty") == 1
    [aside] = (tmp_path / "quarantine").glob(f"*-{CATALOG}")
    assert aside.read_bytes() == content
    store.close()


def test_a_catalog_that_breaks_under_an_open_store_is_begun_anew(
    store: Store, tmp_path: Path, stored: Callable[..., Any], caplog: Any
) -> None:
    for number in range(200):
        store.put(stored(f"{number}"), b"%d" % number, b"")
    store.close()
    data = bytearray((tmp_path / CATALOG).read_bytes())
    data[8192:] = b"\xff" * (len(data) - 8192)
    (tmp_path / CATALOG).write_bytes(data)
    assert store.infos() == []
    store.put(stored("a"), b"executable", b"")
    assert keys(store) == ["a"]
    assert caplog.text.count("the cache starts empty") == 1


def test_one_damaged_row_is_removed_with_a_warning_and_written_again(
    store: Store, tmp_path: Path, stored: Callable[..., Any], caplog: Any
) -> None:
    for key in "ab":
        store.put(stored(key), b"executable", b"")
    with sqlite3.connect(tmp_path / CATALOG) as other:
        other.execute("UPDATE details SET facts = x'00' WHERE key = 'a'")
    other.close()
    store.used(Use("a", 1, 0.5, time.time()))  # a change does not make it sound
    store.flush()
    assert store.get("a") is None
    assert caplog.text.count("a damaged row") == 1
    assert keys(store) == ["b"]
    store.put(stored("a"), b"executable", b"")
    found = store.get("a")
    assert found is not None
    assert found.facts == b"facts"
    assert caplog.text.count("a damaged row") == 1


def test_a_damaged_size_does_not_make_programs_leave(
    store: Store, tmp_path: Path, stored: Callable[..., Any], caplog: Any
) -> None:
    for key in "ab":
        store.put(stored(key, pinned=key == "a"), f"executable of {key}".encode(), b"")
    with sqlite3.connect(tmp_path / CATALOG) as other:
        other.execute("UPDATE blobs SET bytes = 1 << 62")
    other.close()
    store.trim()
    assert keys(store) == ["a", "b"]
    assert store.nbytes < MIB
    assert "a damaged row" in caplog.text


@pytest.mark.slow
def test_no_flipped_bit_of_the_catalog_changes_a_program(tmp_path: Path, stored: Callable[..., Any]) -> None:
    store = Store(tmp_path, 100 * MIB)
    row = dataclasses.replace(stored("a", "é"), facts=b"facts" * 300, request=b"request" * 300)
    written = store.put(row, b"executable", b"capture")
    store.close()
    sound = (tmp_path / CATALOG).read_bytes()
    used = [place for place, byte in enumerate(sound) if byte and place != 18]  # which makes it read-only
    lost = 0
    for place in random.Random(0).sample(used, 300):
        (tmp_path / CATALOG).write_bytes(sound[:place] + bytes([sound[place] ^ 1 << place % 8]) + sound[place + 1 :])
        store = Store(tmp_path, 100 * MIB)
        assert [info for info in store.infos() if info != written.info] == []
        assert store.get("a") in (written, None)
        lost += store.get("a") is None
        store.collect()
        again = [store.put(row, b"executable", b"capture") for _ in range(2)]  # the first one may find the damage
        assert again[1] == written
        assert store.get("a") == written
        store.close()
    assert lost > 150  # most of them were flips in the row


def test_two_stores_share_a_folder(store: Store, tmp_path: Path, stored: Callable[..., Any]) -> None:
    other = Store(tmp_path, 100 * MIB)
    store.put(stored("a"), b"executable a", b"capture")
    other.put(stored("b"), b"executable b", b"capture")
    assert keys(store) == keys(other) == ["a", "b"]
    other.remove(["a"])
    assert store.get("a") is None
    found = store.get("b")
    assert found is not None
    assert bytes(store.blob(found.capture) or b"") == b"capture"
    other.close()


def test_a_row_is_replaced_whole(store: Store, stored: Callable[..., Any]) -> None:
    store.put(stored("a", "old"), b"old executable", b"old capture")
    store.put(dataclasses.replace(stored("a", "new"), facts=b"new facts"), b"new executable", b"")
    [found] = [store.get("a")]
    assert found is not None
    assert (found.info.name, found.facts, found.capture) == ("new", b"new facts", "")
    assert bytes(store.blob(found.executable) or b"") == b"new executable"
