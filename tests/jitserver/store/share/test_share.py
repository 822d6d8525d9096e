"""The lab's cache gives what a member has put there, and nothing else; and it is never in the way."""

import dataclasses
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest

from jitserver.store.entry import Stored
from jitserver.store.share import entries, share, storage
from jitserver.store.share.objects import Objects
from jitserver.store.share.options import LabOptions
from jitserver.store.share.share import Share
from jitserver.store.share.storage import Storage

OTHER_KEY = b"a secret of another project"


@pytest.fixture
def files() -> Any:
    return fsspec.filesystem("memory")


def path_of(url: str, name: str) -> str:
    return "/" + url.removeprefix("memory://") + "/" + name


def test_a_member_finds_what_another_has_made(member: Callable[..., Share], program: Callable[..., Stored]) -> None:
    assert member().put(program("k1", ("numpy.pi",), "b1"), b"executable")
    reader = member()
    assert reader.lists_of(program("k1", ("numpy.pi",), "b1").components.portable_base) == {("numpy.pi",): 2.0}
    found = reader.get("k1", 2.0)
    assert found is not None
    stored, executable = found
    assert (stored.key, stored.facts, executable) == ("k1", b"facts", b"executable")
    assert dict(stored.components.rows) == {"capture": b"b1", "machine": b"this", "manifest": b"numpy.pi"}
    assert reader.lists_of("other") == {}
    assert reader.get("other", 2.0) is None


def test_programs_under_several_manifests_are_found(
    member: Callable[..., Share], program: Callable[..., Stored]
) -> None:
    for key, names in (("k1", ("a",)), ("k2", ("b",)), ("k3", ("a",)), ("b1", ())):
        assert member().put(program(key, names, "b1"), b"x")
    base = program("b1").components.portable_base
    assert member().lists_of(base).keys() == {("a",), ("b",), ()}
    for number in range(8):
        assert member().put(program(f"m{number}", (f"{number}",), "b1"), b"x")
    assert member().lists_of(base).keys() == {(f"{number}",) for number in range(8)}
    # Two members who write in the same moment lose one list, until one of them makes its program again.
    assert not member().put(program("k1", ("a",), "b1"), b"x")
    assert ("a",) in member().lists_of(base)


def test_what_was_quick_to_make_or_is_there_is_not_sent(
    member: Callable[..., Share], program: Callable[..., Stored]
) -> None:
    assert not member().put(program("quick", seconds=0.2), b"x")
    assert not member().put(program("k1"), b"")
    assert not member(writes=False).put(program("k1"), b"x")
    assert member().get("k1", 2.0) is None
    first = member()
    assert first.put(program("k1"), b"x")
    assert not first.put(program("k1"), b"x")
    assert first.status().uploaded == 1


def test_a_trace_is_found_by_machines_of_any_kind(member: Callable[..., Share], program: Callable[..., Stored]) -> None:
    made = program("k1", ("numpy.pi",), "b1")
    made.info.seconds = {"trace": 1.5, "compile": 4.0}
    assert member().put(made, b"executable", lambda: b"trace")
    rows = {**made.components.rows, "machine": b"another"}
    there = dataclasses.replace(made, components=dataclasses.replace(made.components, rows=rows))
    reader = member()
    assert reader.lists_of(there.components.portable_base) == {("numpy.pi",): 5.5}
    assert reader.has_trace(there.components.portable_key)
    found = reader.get_trace(there.components.portable_key, 5.5)
    assert found is not None
    assert (found[0].facts, found[1]) == (b"facts", b"trace")
    of_another = dataclasses.replace(made.components, rows={**rows, "capture": b"another"})
    assert reader.get_trace(of_another.portable_key, 5.5) is None


def test_a_program_is_found_while_its_trace_is_serialized(
    member: Callable[..., Share], program: Callable[..., Stored]
) -> None:
    made, found = program("k1"), list[dict[tuple[str, ...], float]]()
    made.info.seconds = {"trace": 1.5, "compile": 4.0}

    def trace() -> bytes:
        found.append(member().lists_of(made.components.portable_base))
        return b"trace"

    member().put(made, b"executable", trace)
    assert found == [{(): 5.5}]


def test_a_trace_is_shared_once_and_only_if_it_took_long(
    member: Callable[..., Share], program: Callable[..., Stored]
) -> None:
    made, calls = program("k1"), []

    def trace() -> bytes:
        calls.append(made.key)
        return b"trace"

    made.info.seconds = {"trace": 0.2, "compile": 4.0}
    assert member().put(made, b"x", trace)
    assert not calls
    made.info.seconds = {"trace": 1.5, "compile": 4.0}
    for _ in range(2):
        assert not member().put(made, b"x", trace)
    assert len(calls) == 1


def test_a_program_of_which_nothing_can_be_shared_is_not_listed(
    member: Callable[..., Share], program: Callable[..., Stored]
) -> None:
    made = program("k1")
    assert not member().put(made, b"")
    assert member().lists_of(made.components.portable_base) == {}
    made.info.seconds = {"trace": 2.0}
    assert not member().put(made, b"", lambda: b"trace")
    assert member().lists_of(made.components.portable_base) == {(): 2.0}


def test_places_and_values_stay_at_home(
    member: Callable[..., Share], program: Callable[..., Stored], url: str, files: Any
) -> None:
    member().put(program("k1"), b"x")
    data = files.cat_file(path_of(url, entries.program_name("k1")))
    assert b"/home/me" not in data
    assert b"the value of a global" not in data
    assert b"f.py:1" in data  # the name of the file, for people


def test_an_entry_of_which_any_byte_is_changed_is_a_miss(
    member: Callable[..., Share], program: Callable[..., Stored], url: str, files: Any
) -> None:
    member().put(program("k1"), b"x")
    path = path_of(url, entries.program_name("k1"))
    good = files.cat_file(path)
    reader = member()
    for place in range(len(good)):
        bad = bytearray(good)
        bad[place] ^= 1
        files.pipe_file(path, bytes(bad))
        assert reader.get("k1", 2.0) is None, place
    for size in (0, 1, 7, 8, 39, 40, len(good) - 1):
        files.pipe_file(path, good[:size])
        assert reader.get("k1", 2.0) is None, size
    assert sum(reader.status().rejected.values()) == len(good) + 7
    files.pipe_file(path, good)
    assert reader.get("k1", 2.0) is not None


def test_an_entry_of_another_name_project_or_version_is_a_miss(
    member: Callable[..., Share], program: Callable[..., Stored], url: str, files: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in ("k1", "k2"):
        member().put(program(key), b"x")
    one, other = (path_of(url, entries.program_name(key)) for key in ("k1", "k2"))
    files.pipe_file(one, files.cat_file(other))
    reader, stranger = member(), member(key=OTHER_KEY)
    assert reader.get("k1", 2.0) is None
    assert stranger.get("k2", 2.0) is None
    assert stranger.lists_of(program("k2").components.portable_base) == {}
    assert reader.status().rejected == {"signature": 1}
    monkeypatch.setattr(entries, "FOLDER", "programs-of-another-version")
    assert member().get("k2", 2.0) is None


def test_lists_that_a_member_may_not_read_stay(tmp_path: Path, program: Callable[..., Stored]) -> None:
    def member() -> Share:
        return Share(Storage(LabOptions(f"file://{tmp_path}", b"a secret of the project")))

    base = program("k1", ("a",), "b1").components.portable_base
    assert member().put(program("k1", ("a",), "b1"), b"x")

    class Forbidding(Objects):
        def get(self, name: str, max_bytes: int) -> bytes | None:
            if name == entries.names_name(base):
                raise PermissionError(name)
            return super().get(name, max_bytes)

    other = Share(Storage(LabOptions(f"file://{tmp_path}", b"a secret of the project"), Forbidding))
    assert other.put(program("k2", ("b",), "b1"), b"x")
    assert member().lists_of(base).keys() == {("a",)}


def test_an_upload_replaces_what_was_rejected(
    member: Callable[..., Share], program: Callable[..., Stored], url: str, files: Any
) -> None:
    member().put(program("k1"), b"x")
    base = program("k1").components.portable_base
    for name in (entries.program_name("k1"), entries.names_name(base)):
        files.pipe_file(path_of(url, name), b"garbage")
    mender = member()
    assert mender.lists_of(base) == {}
    assert mender.get("k1", 2.0) is None
    assert mender.put(program("k1"), b"x")
    assert member().lists_of(base) == {(): 2.0}
    assert member().get("k1", 2.0) is not None


class _Broken(Objects):
    """A storage that refuses, or does not answer."""

    def __init__(self, act: Callable[[], None]) -> None:
        self.act, self.asked = act, 0

    def get(self, name: str, max_bytes: int) -> bytes | None:
        self.asked += 1
        self.act()
        return None


def _refuse() -> None:
    raise RuntimeError("the bucket is gone")


def test_a_storage_that_fails_is_left_alone_for_a_while(member: Callable[..., Share], caplog: Any) -> None:
    broken = _Broken(_refuse)
    asking = Share(Storage(member().storage.options, lambda _: broken))
    for _ in range(5):
        assert asking.lists_of("b1") == {}
        assert asking.get("k1", 2.0) is None
    assert broken.asked == 1
    assert "RuntimeError: the bucket is gone" in asking.status().why_off
    assert len([record for record in caplog.records if record.levelname == "WARNING"]) == 1


def test_what_the_storage_forbids_is_missing_and_the_rest_is_found(
    member: Callable[..., Share], program: Callable[..., Stored], monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """A member with the umask 077 writes files that others of the group cannot read."""
    for name in ("k1", "k2"):
        assert member().put(program(name), b"x")
    get = Objects.get

    def forbidding(self: Objects, name: str, max_bytes: int) -> bytes | None:
        if "k1" in name:
            raise PermissionError(13, "Permission denied", name)
        return get(self, name, max_bytes)

    monkeypatch.setattr(Objects, "get", forbidding)
    asking = member()
    for _ in range(3):
        assert asking.get("k1", 2.0) is None
        assert asking.get("k2", 2.0) is not None
    assert asking.status().rejected == {"forbidden": 3}
    assert len([record for record in caplog.records if record.levelname == "WARNING"]) == 1


def test_a_storage_whose_library_is_missing_is_as_one_that_fails(member: Callable[..., Share]) -> None:
    asking = Share(Storage(LabOptions("nonsense://x", b"a secret of the project")))
    asking.storage.connect()
    assert asking.lists_of("b1") == {}
    assert asking.status().why_off.startswith("SettingsError: JITSERVER_SHARE='nonsense://x'")


def test_a_storage_that_hangs_holds_up_no_call(member: Callable[..., Share], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share, "READ_SECONDS", 0.05)
    monkeypatch.setattr(storage, "READ_SECONDS", 0.05)
    monkeypatch.setattr(storage, "_PAUSE_SECONDS", 0.0)
    hangs = threading.Event()
    broken = _Broken(lambda: hangs.wait() and None)  # type: ignore[func-returns-value]
    asking = Share(Storage(member().storage.options, lambda _: broken))
    try:
        assert asking.get("k1", 1e6) is None
        assert [asking.lists_of("b1") for _ in range(5)] == [{}] * 5
        assert broken.asked == 1
    finally:
        hangs.set()
    while asking.status().why_off:
        asking.lists_of("b1")
    assert broken.asked > 1


def test_a_compilation_is_found_by_its_text(member: Callable[..., Share], url: str, files: Any) -> None:
    assert member().get_compilation("key") is None
    member(writes=False).put_compilation("key", b"executable", 7.0)
    member().put_compilation("key", b"executable", 0.2)
    assert member().get_compilation("key") is None
    member().put_compilation("key", b"executable", 7.0)
    reader = member()
    assert reader.get_compilation("key") == (b"executable", 7.0)
    assert (reader.status().found, reader.status().seconds_saved) == (1, 7.0)
    files.pipe_file(path_of(url, entries.compilation_name("key")), b"of another project")
    assert reader.get_compilation("key") is None
    assert reader.status().rejected == {"unsigned": 1}
    reader.put_compilation("key", b"again", 7.0)
    assert reader.get_compilation("key") == (b"again", 7.0)
