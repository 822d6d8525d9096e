"""Archives of caches: what was exported is imported, and no file of another kind gets past the door."""

import gzip
import os
import stat
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jitclient.core.directories import compilations_directory
from jitclient.errors import ArchiveRefused
from jitserver.store import archive
from jitserver.store.disk import Store

MIB = 1 << 20
KEYS = [letter * 32 for letter in "abc"]


@pytest.fixture
def cache(tmp_path: Path, stored: Callable[..., Any]) -> Path:
    """A cache of three programs, one without an executable, and two compilations, beside a file of neither."""
    path = tmp_path / "cache"
    path.mkdir()
    store = Store(path, 100 * MIB)
    for number, key in enumerate(KEYS):
        store.put(stored(key, f"f{number}", hits=number), b"executable" * number, b"the same capture")
    store.close()
    compilations_directory(path).mkdir()
    for name in ("d" * 32, "e" * 32, "f" * 32 + ".0123"):
        (compilations_directory(path) / name).write_bytes(name.encode() * 100)
    return path


def copied(file: Path, directory: Path, max_bytes: int = 100 * MIB) -> tuple[int, int]:
    """How many programs and compilations of a file a cache did not have."""
    with archive.to_disk(directory, max_bytes) as put:
        new = [item for item in archive.read(file, max_bytes) if not put(item)]
    return sum(item.program is not None for item in new), sum(item.program is None for item in new)


def export(file: Path, directories: list[Path]) -> tuple[int, int]:
    with archive.written(file) as put:
        new = [item for item in archive.of_disk(directories) if not put(item)]
    return sum(item.program is not None for item in new), sum(item.program is None for item in new)


@pytest.fixture
def made(cache: Path, tmp_path: Path) -> Path:
    file = tmp_path / "made.tar"
    assert export(file, [cache]) == (3, 2)
    return file


@pytest.fixture
def other(tmp_path: Path) -> Path:
    path = tmp_path / "other"
    path.mkdir()
    return path


def contents(cache: Path) -> dict[str, Any]:
    store = Store(cache, 100 * MIB)
    try:
        programs = {
            info.key: (store.get(info.key), *(bytes(store.blob(name) or b"") for name in blobs(store, info.key)))
            for info in store.infos()
        }
    finally:
        store.close()
    return {**programs, **{path.name: path.read_bytes() for path in compilations_directory(cache).glob("*")}}


def blobs(store: Store, key: str) -> tuple[str, str]:
    found = store.get(key)
    assert found is not None
    return found.executable, found.capture


def test_another_cache_gets_what_it_lacks(made: Path, cache: Path, other: Path) -> None:
    assert copied(made, other) == (3, 2)
    expected = contents(cache)
    del expected["f" * 32 + ".0123"]
    assert contents(other) == expected
    assert copied(made, other) == (0, 0)


def test_only_the_user_reads_an_archive_and_it_appears_when_it_is_whole(
    made: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stat.S_IMODE(made.stat().st_mode) == 0o600
    before, siblings = made.read_bytes(), sorted(made.parent.iterdir())

    def fail(*_: Any) -> Iterator[Any]:
        raise OSError("the disk is full")

    monkeypatch.setattr(archive, "encoded", fail)
    with pytest.raises(OSError, match="the disk is full"):
        export(made, [cache])
    assert made.read_bytes() == before
    assert sorted(made.parent.iterdir()) == siblings


def test_several_caches_make_one_archive(made: Path, cache: Path, other: Path, stored: Callable[..., Any]) -> None:
    store = Store(other, 100 * MIB)
    for key in (KEYS[0], "9" * 32):
        store.put(stored(key), b"", b"capture")
    store.close()
    assert export(made, [cache, other]) == (4, 2)


def refused(file: Path, other: Path, match: str = ".", max_bytes: int = 100 * MIB) -> None:
    with pytest.raises(ArchiveRefused, match=match):
        copied(file, other, max_bytes)
    assert list(other.iterdir()) == []


def test_damage_anywhere_imports_nothing(made: Path, other: Path) -> None:
    whole = made.read_bytes()
    with tarfile.open(made) as tar:
        members = list(tar)
    for member in members:
        for at in (member.offset + 1, member.offset_data, member.offset_data + member.size - 1):
            made.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            refused(made, other)
    for length in range(0, members[-1].offset_data + members[-1].size, 512):
        made.write_bytes(whole[:length])
        refused(made, other)


def test_other_versions_are_refused_with_both(made: Path, other: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "versions", lambda: {"jitserver": "9.9", "jax": "0.1"})
    refused(made, other, r"jax \S+ there and 0\.1 here")


def pretended(file: Path, *members: tuple[Any, bytes], count: int | None = None) -> Path:
    """An archive with valid digests, of members by name or with a header of their own."""
    with tarfile.open(file, "w") as tar:
        archive._add(tar, archive._VERSIONS, archive.msgspec.json.encode(archive.versions()))
        for member, data in members:
            if isinstance(member, str):
                archive._add(tar, member, data)
            else:
                blocks = data.ljust(-(-len(data) // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE, b"\0")
                tar.fileobj.write(member.tobuf(tarfile.GNU_FORMAT) + blocks)  # type: ignore[union-attr]
        archive._add(tar, archive._END, str(len(members) if count is None else count).encode())
    return file


def header(name: str, kind: bytes, size: int = 0) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.size, made.linkname = kind, size, "/etc/passwd"
    return made


NAME = f"compilations/{'d' * 32}"
EVIL = {
    "link": (header(NAME, tarfile.SYMTYPE), b""),
    "hard link": (header(NAME, tarfile.LNKTYPE), b""),
    "pipe": (header(NAME, tarfile.FIFOTYPE), b""),
    "device": (header(NAME, tarfile.CHRTYPE), b""),
    "directory": (header(NAME, tarfile.DIRTYPE), b""),
    "sparse file": (header(NAME, tarfile.GNUTYPE_SPARSE, 1 << 40), b""),
    "size": (header(NAME, tarfile.REGTYPE, 1 << 40), b""),
    "no digest": (header(NAME, tarfile.REGTYPE, 3), b"abc"),
    "path above": (f"compilations/../{'d' * 32}", b""),
    "absolute path": (f"/compilations/{'d' * 32}", b""),
    "name of no key": ("compilations/config", b""),
    "other folder": (f"blobs/{'d' * 32}", b""),
    "no program": (f"programs/{'d' * 32}", b"\x93\xc0\xc0\xc0"),
    "second versions": (archive._VERSIONS, b"{}"),
}


@pytest.mark.parametrize("member", EVIL.values(), ids=EVIL)
def test_members_of_other_kinds_are_refused(member: tuple[Any, bytes], tmp_path: Path, other: Path) -> None:
    assert copied(pretended(tmp_path / "good.tar", (NAME, b"data")), other, MIB) == (0, 1)
    (compilations_directory(other) / ("d" * 32)).unlink()
    before = sorted(other.rglob("*"))
    with pytest.raises(ArchiveRefused):
        copied(pretended(tmp_path / "evil.tar", member), other, MIB)
    assert sorted(other.rglob("*")) == before


def test_a_program_under_the_key_of_another_is_refused(made: Path, tmp_path: Path, other: Path) -> None:
    with tarfile.open(made) as tar:
        program = tar.extractfile(f"programs/{KEYS[0]}").read()[16:]  # type: ignore[union-attr]
    refused(pretended(tmp_path / "evil.tar", (f"programs/{KEYS[1]}", program)), other, "the program of another key")


def test_the_end_counts_the_members(tmp_path: Path, other: Path) -> None:
    refused(pretended(tmp_path / "few.tar", (NAME, b"data"), count=2), other, "its end is missing")
    refused(pretended(tmp_path / "more.tar", ("end", b"0"), (NAME, b"data")), other, "members after its end")


def test_files_that_are_no_archive_are_refused(made: Path, tmp_path: Path, other: Path) -> None:
    refused(made, other, "more than the cache may have", max_bytes=1000)
    compressed = tmp_path / "compressed.tar"
    compressed.write_bytes(gzip.compress(made.read_bytes()))
    refused(compressed, other, "no archive")
    refused(tmp_path, other, "no regular file")
    os.mkfifo(tmp_path / "pipe")
    refused(tmp_path / "pipe", other, "no regular file")
    with pytest.raises(FileNotFoundError):
        copied(tmp_path / "missing", other, MIB)


def test_a_cache_that_cannot_be_written_is_an_error(made: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        copied(made, tmp_path / "file", 100 * MIB)
