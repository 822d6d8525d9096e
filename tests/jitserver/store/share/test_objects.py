"""Objects appear completely or not at all, on a folder as in a bucket."""

import errno
import io
import os
import uuid
from pathlib import Path

import pytest

from jitclient.errors import SettingsError
from jitserver.store.share import contents
from jitserver.store.share import objects as module
from jitserver.store.share.entries import FOLDER
from jitserver.store.share.objects import Objects


@pytest.fixture(params=["file", "memory"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> Objects:
    return Objects(f"file://{tmp_path}/lab" if request.param == "file" else f"memory://{uuid.uuid4().hex}")


def test_an_object_is_what_was_written_last(objects: Objects) -> None:
    assert objects.get("a/b", 100) is None
    assert not objects.has("a/b")
    assert list(objects.all("a")) == []
    objects.put("a/b", b"first")
    objects.put("a/b", b"second")
    objects.put("a/c/d", b"x")
    assert objects.get("a/b", 100) == b"second"
    assert objects.get("a/b", 3) == b"sec"
    assert objects.has("a/b")
    found = {entry.name: entry for entry in objects.all("a")}
    assert {name: entry.nbytes for name, entry in found.items()} == {"a/b": 6, "a/c/d": 1}
    assert all(entry.written > 1e9 for entry in found.values())
    objects.remove("a/b")
    objects.remove("a/b")
    assert objects.get("a/b", 100) is None


def test_other_members_may_read_what_the_umask_allows(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        Objects(f"file://{tmp_path}").put("a", b"x")
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(module.os, "replace", fail)
    with pytest.raises(OSError, match="no space left"):
        Objects(f"file://{tmp_path}").put("a", b"x")
    assert list(tmp_path.iterdir()) == []


def test_the_file_of_a_write_that_was_killed_is_found_when_it_is_old(tmp_path: Path) -> None:
    objects = Objects(f"file://{tmp_path}")
    objects.put(f"{FOLDER}/a", b"an entry")
    old, new = (tmp_path / FOLDER / f".{uuid.uuid4().hex}" for _ in range(2))
    owners = [tmp_path / ".env", tmp_path / FOLDER / ".notes", tmp_path / "other" / old.name]
    owners[-1].parent.mkdir()
    for path in old, new, *owners:
        path.write_bytes(b"a part")
    for path in old, *owners:
        os.utime(path, (1, 1))
    assert not {old.name, new.name} & {os.path.basename(each.name) for each in objects.all(FOLDER)}
    assert {each.name for each in objects.unfinished(FOLDER)} == {f"{FOLDER}/{each.name}" for each in (old, new)}
    (found,) = contents.abandoned(objects)
    contents.remove(objects, [found])
    assert not old.exists()
    assert all(path.exists() for path in (new, *owners))
    assert objects.has(f"{FOLDER}/a")


def test_a_storage_without_its_library_says_what_to_install() -> None:
    with pytest.raises(SettingsError, match="JITSERVER_SHARE='nonsense://x'"):
        Objects("nonsense://x")


def test_a_write_that_fails_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.FileIO):
        def write(self, data: object) -> int:
            raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(module, "open", Full, raising=False)
    with pytest.raises(OSError, match="no space left"):
        Objects(f"file://{tmp_path}").put("a/b", b"data")
    assert [path.name for path in tmp_path.rglob("*")] == ["a"]
