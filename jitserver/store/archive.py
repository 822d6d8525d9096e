"""Archives: a cache as one plain tar file, for machines of the same kind.

    jitserver.json        versions of what made the archive
    programs/KEY          message `_Program`: a program's description, executable and capture
    compilations/KEY      file of a compilation of jax's own, as `jaxside/compilation_cache.py` draws it
    end                   number of the members above

Each member begins with a 16-byte digest of its name and of the rest, so that damage is found. A digest proves no
origin: an executable is code, so import only what you would run as a program.
"""

import contextlib
import os
import platform
import re
import stat
import sys
import tarfile
from collections.abc import Iterable, Iterator
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

_VERSIONS, _END = "jitserver.json", "end"
_NAME = re.compile(r"(programs|compilations)/([0-9a-f]{16,64})")
_KINDS = (tarfile.REGTYPE, tarfile.AREGTYPE)
_DIGEST_BYTES = 16
_MAX_MEMBER_BYTES = 1 << 30


class _Program(NamedTuple):
    stored: Stored
    executable: bytes
    capture: bytes


class Moved(NamedTuple):
    """Programs and compilations that were written to an archive, or were new in a cache."""

    programs: int
    compilations: int


def versions() -> dict[str, str]:
    """Return the versions on which executables and their descriptions depend."""
    found = {"jitserver": __version__, "archive": "1", "catalog": str(FORMAT), "machine": platform.machine()}
    found["python"] = platform.python_version()
    for name in ("jax", "jaxlib"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def export_cache(file: Path, directories: Iterable[Path]) -> Moved:
    """Write the programs and compilations in cache directories to an archive, which replaces `file` once it is whole.

    Only the user can read the file, since programs hold values of their functions.

    Raises:
        OSError: the file cannot be written.
    """
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    written: dict[str, int] = {"programs": 0, "compilations": 0}
    try:
        with (
            open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as raw,
            tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as tar,
        ):
            _add(tar, _VERSIONS, msgspec.json.encode(versions()))
            names = set()
            for name, data in (member for directory in directories for member in _contents(directory)):
                if name not in names:
                    names.add(name)
                    _add(tar, name, data)
                    written[name.partition("/")[0]] += 1
            _add(tar, _END, str(len(names)).encode())
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)
    return Moved(**written)


def import_cache(file: Path, directory: Path, max_bytes: int) -> Moved:
    """Add the programs and compilations of an archive to a cache directory, which a daemon may use at the same time.

    The whole archive is checked before anything of it is stored.

    Args:
        file: the archive.
        directory: the cache directory of this environment.
        max_bytes: limit of the cache on the disk.

    Returns:
        The number of those that the cache did not have.

    Raises:
        ArchiveRefused: the file is no archive, is damaged or too large, or was made with other versions.
        OSError: the file cannot be read, or the cache cannot be written.
    """
    found = os.stat(file)
    # A pipe would block.
    if not stat.S_ISREG(found.st_mode):
        raise ArchiveRefused(f"{file} is no regular file")
    if found.st_size > max_bytes:
        raise ArchiveRefused(f"{file} has {found.st_size:,} bytes, more than the cache may have ({max_bytes:,})")
    with open(file, "rb") as raw:
        try:
            for name, data in _members(raw):
                _check(name, data)
        except ArchiveRefused:
            raise
        # The headers of a file that was made to harm may lead to any exception.
        except Exception as error:
            raise ArchiveRefused(f"{file} is no archive of a cache, or is damaged ({error})") from error
        return _store(_members(raw), directory, max_bytes)


# ---- reading a cache, and writing to it


def _contents(directory: Path) -> Iterator[tuple[str, bytes]]:
    """Yield name and data of each program and compilation in a cache directory."""
    with contextlib.closing(Store(directory, sys.maxsize)) as store:
        for info in store.infos():
            stored = store.get(info.key)
            # Another process may have evicted the program.
            if stored is None:
                continue
            blobs = [store.blob(name) if name else b"" for name in (stored.executable, stored.capture)]
            if None not in blobs:
                executable, capture = (bytes(blob or b"") for blob in blobs)
                yield f"programs/{stored.key}", encoded(_Program(stored, executable, capture))
    for path in sorted(compilations_directory(directory).glob("*")):
        if _NAME.fullmatch(f"compilations/{path.name}"):
            # Another process may have evicted the compilation.
            with contextlib.suppress(OSError):
                yield f"compilations/{path.name}", path.read_bytes()


def _check(name: str, data: bytes) -> None:
    kind, _, key = name.partition("/")
    if kind == "programs" and unpacked(data, _Program).stored.key != key:
        raise Corrupt(f"{name} is the program of another key")


def _store(members: Iterator[tuple[str, bytes]], directory: Path, max_bytes: int) -> Moved:
    added = {"programs": 0, "compilations": 0}
    folder = compilations_directory(directory)
    folder.mkdir(mode=0o700, exist_ok=True)
    with contextlib.closing(Store(directory, max_bytes)) as store:
        for name, data in members:
            kind, _, key = name.partition("/")
            if kind == "programs":
                stored, executable, capture = unpacked(data, _Program)
                is_new = store.get(key) is None
                if is_new and store.put(stored, executable, capture) is stored:
                    raise OSError(f"{directory}: the cache cannot be written; see the warning above")
            elif is_new := not (folder / key).exists():
                _write(folder / key, data)
            added[kind] += is_new
    trim(folder, max_bytes // 4)
    return Moved(**added)


def _write(path: Path, data: bytes) -> None:
    """Write a file that other processes see only when it is whole."""
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
            f"the archive was made with other versions: {differences}. Make one with `jitserver cache export` in an "
            "environment like this one"
        )


def _digest(name: str, data: bytes) -> bytes:
    return digest(digest(name.encode()) + digest(data), _DIGEST_BYTES)
