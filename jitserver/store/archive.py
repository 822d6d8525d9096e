"""Copies of caches: items from the disk or an archive, one plain tar file, to machines of the same kind.

    jitserver.json        versions of what made the archive
    programs/KEY          message `_Copied`: a program's description, executable and capture
    compilations/KEY      file of a compilation of jax's own, as `jaxside/compilation_cache.py` draws it
    end                   number of the members above

Each member begins with a 16-byte digest of its name and of the rest, so that damage is found. A digest proves no
origin: an executable is code, so import only what you would run as a program.

A destination is a function that takes an item and returns why it was left out; empty if the item is new there.
"""

import contextlib
import os
import platform
import re
import stat
import sys
import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import metadata
from io import BytesIO
from pathlib import Path
from typing import IO, NamedTuple

import msgspec

from jitclient.core.digests import digest
from jitclient.core.directories import compilations_directory, trim
from jitclient.errors import ArchiveRefused
from jitclient.version import __version__
from jitclient.wire.encoding import encoded
from jitserver.store.catalog import FORMAT
from jitserver.store.checked_files import Corrupt, unpacked
from jitserver.store.disk import Store
from jitserver.store.entry import Stored

ALREADY_THERE = "already there"

_VERSIONS, _END = "jitserver.json", "end"
_NAME = re.compile(r"(programs|compilations)/([0-9a-f]{16,64})")
_KINDS = (tarfile.REGTYPE, tarfile.AREGTYPE)
_DIGEST_BYTES = 16
_MAX_MEMBER_BYTES = 1 << 30


class _Copied(NamedTuple):
    """A program's description, executable and capture; the last two may be empty."""

    stored: Stored
    executable: bytes
    capture: bytes


class CachedItem(NamedTuple):
    """A program, or the bytes of a compilation of jax's own, with its kind and key as `kind/key`."""

    name: str
    program: _Copied | None
    compilation: bytes = b""

    def is_meant(self, words: Sequence[str]) -> bool:
        """Return whether a word is the beginning of the program's key, or its function; True if there are no words."""
        if not words:
            return True
        info = self.program and self.program.stored.info
        return info is not None and any(info.key.startswith(word) or info.name == word for word in words)


def versions() -> dict[str, str]:
    """Return the versions on which executables and their descriptions depend."""
    found = {"jitserver": __version__, "archive": "1", "catalog": str(FORMAT), "machine": platform.machine()}
    found["python"] = platform.python_version()
    for name in ("jax", "jaxlib"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


@contextlib.contextmanager
def written(file: Path) -> Iterator[Callable[[CachedItem], str]]:
    """Give the destination that is an archive, which replaces `file` once it is whole.

    Only the user can read the file, since programs hold values of their functions.

    Raises:
        OSError: the file cannot be written.
    """
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    names = set()
    try:
        with (
            open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as raw,
            tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as tar,
        ):

            def put(item: CachedItem) -> str:
                if item.name in names:
                    return ALREADY_THERE
                names.add(item.name)
                _add(tar, item.name, encoded(item.program) if item.program else item.compilation)
                return ""

            _add(tar, _VERSIONS, msgspec.json.encode(versions()))
            yield put
            _add(tar, _END, str(len(names)).encode())
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)


def read(file: Path, max_bytes: int) -> Iterator[CachedItem]:
    """Yield what an archive has. The whole archive is checked before.

    Args:
        file: the archive.
        max_bytes: the size from which on an archive is refused.

    Raises:
        ArchiveRefused: the file is no archive, is damaged or too large, or was made with other versions.
        OSError: the file cannot be read.
    """
    found = os.stat(file)
    # A pipe would block.
    if not stat.S_ISREG(found.st_mode):
        raise ArchiveRefused(f"{file} is no regular file")
    if found.st_size > max_bytes:
        raise ArchiveRefused(f"{file} has {found.st_size:,} bytes, more than the cache may have ({max_bytes:,})")
    with open(file, "rb") as raw:
        try:
            for _ in _items(raw):
                pass
        except ArchiveRefused:
            raise
        # The headers of a file that was made to harm may lead to any exception.
        except Exception as error:
            raise ArchiveRefused(f"{file} is no archive of a cache, or is damaged ({error})") from error
        yield from _items(raw)


def _items(raw: IO[bytes]) -> Iterator[CachedItem]:
    for name, data in _members(raw):
        kind, _, key = name.partition("/")
        program = unpacked(data, _Copied) if kind == "programs" else None
        if program is not None and program.stored.key != key:
            raise Corrupt(f"{name} is the program of another key")
        yield CachedItem(name, program, b"" if program else data)


# ---- the disk


def of_disk(directories: Iterable[Path]) -> Iterator[CachedItem]:
    """Yield what is in cache directories."""
    for directory in directories:
        with contextlib.closing(Store(directory, sys.maxsize)) as store:
            for info in store.infos():
                stored = store.get(info.key)
                # Another process may have evicted the program.
                if stored is None:
                    continue
                blobs = [store.blob(name) if name else b"" for name in (stored.executable, stored.capture)]
                if None not in blobs:
                    executable, capture = (bytes(blob or b"") for blob in blobs)
                    yield CachedItem(f"programs/{stored.key}", _Copied(stored, executable, capture))
        for path in sorted(compilations_directory(directory).glob("*")):
            if _NAME.fullmatch(f"compilations/{path.name}"):
                # Another process may have evicted the compilation.
                with contextlib.suppress(OSError):
                    yield CachedItem(f"compilations/{path.name}", None, path.read_bytes())


@contextlib.contextmanager
def to_disk(directory: Path, max_bytes: int) -> Iterator[Callable[[CachedItem], str]]:
    """Give the destination that is a cache directory, which a daemon may use at the same time, with its limit.

    It raises an OSError if the directory cannot be written.
    """
    folder = compilations_directory(directory)
    with contextlib.closing(Store(directory, max_bytes)) as store:

        def put(item: CachedItem) -> str:
            key = item.name.partition("/")[2]
            is_there = (folder / key).exists() if item.program is None else store.get(key) is not None
            if is_there:
                return ALREADY_THERE
            if item.program is None:
                _write(folder / key, item.compilation)
            elif store.put(*item.program) is item.program.stored:
                raise OSError(f"{directory}: the cache cannot be written; see the warning above")
            return ""

        yield put
    trim(folder, max_bytes // 4)


def _write(path: Path, data: bytes) -> None:
    """Write a file that other processes see only when it is whole."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.urandom(6).hex()}")
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
        temporary.rename(path)
    finally:
        temporary.unlink(missing_ok=True)


# ---- the tar file


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = _DIGEST_BYTES + len(data), 0o600
    tar.addfile(member, BytesIO(_digest(name, data) + data))


def _members(raw: IO[bytes]) -> Iterator[tuple[str, bytes]]:
    """Yield name and data of each program and compilation in an archive.

    Raises:
        ArchiveRefused: the archive was made with other versions.
        Exception: the file is no archive, or damaged.
    """
    raw.seek(0)
    number, is_whole = 0, False
    # Without "r:", tarfile would also read compressed files, which may have any size.
    with tarfile.open(fileobj=raw, mode="r:") as tar:
        for member in tar:
            data = _data(tar, member)
            if is_whole:
                raise Corrupt("there are members after its end")
            if not number:
                _check_versions(member.name, data)
            elif member.name == _END:
                is_whole = int(data) == number - 1
            elif _NAME.fullmatch(member.name):
                yield member.name, data
            else:
                raise Corrupt(f"unknown member {member.name!r:.100}")
            number += 1
    if not is_whole:
        raise Corrupt("its end is missing")


def _data(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    """Return the data of a member, without the digest."""
    if member.type not in _KINDS or member.issparse() or not _DIGEST_BYTES <= member.size <= _MAX_MEMBER_BYTES:
        raise Corrupt(f"member {member.name!r:.100} is no regular file, or too large")
    file = tar.extractfile(member)
    data = b"" if file is None else file.read()
    if len(data) != member.size or data[:_DIGEST_BYTES] != _digest(member.name, data[_DIGEST_BYTES:]):
        raise Corrupt(f"member {member.name!r:.100} has a wrong digest")
    return data[_DIGEST_BYTES:]


def _check_versions(name: str, data: bytes) -> None:
    if name != _VERSIONS:
        raise Corrupt("it has no versions")
    theirs, ours = msgspec.json.decode(data, type=dict[str, str]), versions()
    differ = [key for key in ours if theirs.get(key) != ours[key]]
    if differ:
        differences = ", ".join(f"{key} {theirs.get(key)} there and {ours[key]} here" for key in differ)
        raise ArchiveRefused(
            f"the archive was made with other versions: {differences}. Make one with `jitserver cache copy disk FILE` "
            "in an environment like this one"
        )


def _digest(name: str, data: bytes) -> bytes:
    return digest(digest(name.encode()) + digest(data), _DIGEST_BYTES)
