"""Manifests: the state of each session and name, and the files that it references. Does not depend on jax."""

import contextlib
import logging
import os
import threading
from pathlib import Path
from typing import Literal
from urllib.parse import quote, unquote

import msgspec

from jitclient.core import directories
from jitclient.core.digests import digest
from jitclient.core.directories import private_directory
from jitclient.errors import SettingsError
from jitclient.wire.array_transport import nbytes_of
from jitclient.wire.messages import Failure, Spec
from jitserver.daemon.arrays.named_arrays import TreeState
from jitserver.daemon.sessions.session import SessionState
from jitserver.store import checked_files
from jitserver.store.checked_files import Corrupt, unpacked

log = logging.getLogger(__name__)

_NAME_PREFIX = "name-"
_MAX_NAME = 200


class StoredArray(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """An array in a file.

    Attributes:
        file: the name of the file.
        checksum: the crc32 of the file's content.
        spec: the spec of the array, including its sharding.
        committed: whether the array must stay on its devices; otherwise programs that use it may move it.
        shared: whether the array must not be donated to a program.
    """

    file: str
    checksum: int
    spec: Spec
    committed: bool
    shared: bool


class CheckpointManifest(msgspec.Struct, array_like=True, frozen=True):
    """A session or a named tree, with its arrays or their failures, each under all its handles.

    The handles of a tree are the positions of its leaves.
    """

    owner: SessionState | TreeState
    handles: list[tuple[int, ...]]
    arrays: list[StoredArray | Failure]
    version: Literal[1] = 1

    def stored(self) -> list[StoredArray]:
        """Return the arrays that are in files."""
        return [stored for stored in self.arrays if isinstance(stored, StoredArray)]

    def files(self) -> set[str]:
        """Return the names of the files that the manifest references."""
        return {stored.file for stored in self.stored()}


class Manifests:
    """The manifests in a directory. Thread-safe.

    Attributes:
        arrays: the directory of the arrays.
        lock: while it is held, no other thread removes a file.
        lost: the tokens of sessions whose manifests cannot be read, and the reasons.
        lost_names: the same for named trees.
    """

    def __init__(self, root: Path) -> None:
        """Read all manifests; remove damaged and unfinished ones, and arrays that no manifest names."""
        self.arrays = root / "arrays"
        self.lock = threading.RLock()
        self.lost: dict[bytes, str] = {}
        self.lost_names: dict[str, str] = {}
        self._directory = root / "manifests"
        self._found: dict[Path, CheckpointManifest] = {}
        self.make_directories()
        for path in sorted(self._directory.iterdir()):
            self._read(path)
        self.sweep()

    def make_directories(self) -> None:
        """Create the directories that do not exist."""
        for path in (self.arrays.parent, self.arrays, self._directory):
            private_directory(path)

    def all(self) -> list[CheckpointManifest]:
        """Return all manifests in the directory."""
        with self.lock:
            return list(self._found.values())

    def nbytes(self) -> int:
        """Return the bytes of the arrays that the manifests name."""
        with self.lock:
            files = {stored.file: nbytes_of(stored.spec) for found in self._found.values() for stored in found.stored()}
        return sum(files.values())

    def write(self, manifest: CheckpointManifest) -> None:
        """Write a manifest whose arrays are on disk; replace an existing one of the same session or name.

        Raises:
            OSError: the disk is full. An existing manifest is unchanged.
        """
        path = self._path(manifest)
        with self.lock:
            checked_files.write(path, [msgspec.msgpack.encode(manifest)])
            self._found[path] = manifest

    def note_lost(self, manifest: CheckpointManifest) -> None:
        """Write an empty file in place of a manifest, for which even a full disk has room."""
        with contextlib.suppress(OSError):
            self._path(manifest).write_bytes(b"")

    def discard(self, manifest: CheckpointManifest) -> None:
        """Remove the manifest of this session or name, and the arrays that no other manifest names."""
        path = self._path(manifest)
        with self.lock:
            gone = self._found.pop(path, None)
            _remove(path)
            for name in (gone.files() if gone is not None else set()) - self._named():
                _remove(self.arrays / name)

    def sweep(self) -> None:
        """Remove the arrays that no manifest names."""
        with self.lock:
            for name in {path.name for path in self.arrays.iterdir()} - self._named():
                _remove(self.arrays / name)

    def _read(self, path: Path) -> None:
        try:
            if path.name.startswith("."):
                raise Corrupt("the manifest is incomplete")
            if path.stat().st_uid != os.getuid():
                raise Corrupt("the manifest belongs to another user")
            if not path.stat().st_size:
                raise Corrupt("the disk was full when it was written")
            self._found[path] = unpacked(checked_files.read(path), CheckpointManifest)
        except (Corrupt, OSError) as error:
            log.warning("checkpoint: cannot restore the manifest %s (%s)", path, error)
            why = f"the daemon restarted, and its checkpoint is damaged: {error}"
            if path.name.startswith(_NAME_PREFIX):
                self.lost_names[unquote(path.name.removeprefix(_NAME_PREFIX))] = why
            else:
                with contextlib.suppress(ValueError):  # a digest, in place of a long name
                    self.lost[bytes.fromhex(path.name)] = why
            _remove(path)

    def _named(self) -> set[str]:
        return set().union(*(manifest.files() for manifest in self._found.values()))

    def _path(self, manifest: CheckpointManifest) -> Path:
        owner = manifest.owner
        if isinstance(owner, SessionState):
            return self._directory / owner.token.hex()
        # Keep the name readable, to report which tree is lost if the file is damaged.
        name = quote(owner.name, safe="")
        return self._directory / (f"{_NAME_PREFIX}{name}" if len(name) <= _MAX_NAME else f"long-{_digest(owner.name)}")


def directory_of(address: str) -> Path:
    """Return the directory for the daemons at an address, created if necessary."""
    return private_directory(private_directory(directories.environment_directory() / "checkpoint") / _digest(address))


def forget_sessions(address: str) -> None:
    """Remove the saved sessions of an address at which no daemon runs."""
    with contextlib.suppress(SettingsError, OSError):
        manifests = Manifests(directory_of(address))
        for manifest in manifests.all():
            if isinstance(manifest.owner, SessionState):
                manifests.discard(manifest)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


def _digest(text: str) -> str:
    return digest(text.encode(errors="surrogatepass"), 12).hex()
