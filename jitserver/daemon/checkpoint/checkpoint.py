"""Saving and restoring of the sessions and named arrays of the daemons at one address."""

import logging
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jitclient.errors import ArrayLost, SettingsError
from jitclient.wire.messages import Failure
from jitserver.daemon.arrays.named_arrays import NamedArrays, NamedTree
from jitserver.daemon.checkpoint.manifests import CheckpointManifest, Manifests, StoredArray
from jitserver.daemon.checkpoint.saving import Saving
from jitserver.daemon.checkpoint.store import ArrayStore
from jitserver.daemon.sessions.registry import Sessions
from jitserver.daemon.sessions.session import DaemonSession, EntryOf, SessionState
from jitserver.programs.devices.memories import Bytes, bytes_of_specs
from jitserver.programs.exceptions import Failed, failure_of

log = logging.getLogger(__name__)


class Checkpoint:
    """The sessions and named arrays that the previous daemon saved, and those that this one saves."""

    def __init__(self, root: Path) -> None:
        """Open a directory that no other daemon uses.

        Raises:
            SettingsError: the directory belongs to another user.
            OSError: the directory cannot be created or listed.
        """
        self._manifests = Manifests(root)
        self._store = ArrayStore(self._manifests.arrays)

    def nbytes(self) -> int:
        """Return the bytes of the arrays on disk."""
        return self._manifests.nbytes()

    def restore(self, kept: NamedArrays, sessions: Sessions, entry_of: EntryOf) -> None:
        """Restore the sessions and names of the previous daemon. Their arrays are read when a client requests them."""
        sessions.lost |= self._manifests.lost
        for name, why in self._manifests.lost_names.items():
            kept.restore(name, NamedTree("", (), b"", "", (), None, why_lost=why))
        for manifest in self._manifests.all():
            on_disk = Saved(self._manifests, self._store, manifest)
            if not isinstance(manifest.owner, SessionState):
                kept.restore(manifest.owner.name, NamedTree.restored(manifest.owner, on_disk))
                continue
            session = DaemonSession.restored(manifest.owner, on_disk, entry_of, sessions.budget)
            if session.presence.expire_orphan():
                log.info("checkpoint: skipped the session of process %d, which has exited", session.pid)
                session.end()
            else:
                sessions.restore(session)

    def save(self, kept: NamedArrays, sessions: Iterable[DaemonSession], deadline: float) -> None:
        """Write all named trees and the given sessions, which must be frozen; afterwards they own no arrays.

        Arrays are written as far as the disk has room, and until `deadline` (by `time.monotonic`).
        """
        saving = self._collect(kept, sessions)
        try:
            # An existing file may get another reference, so it must not be removed meanwhile.
            with self._manifests.lock:
                self._manifests.make_directories()
                saving.run(deadline)
        except (SettingsError, OSError) as error:
            log.warning("checkpoint: cannot be written (%s). All arrays are lost.", error)

    def _collect(self, kept: NamedArrays, sessions: Iterable[DaemonSession]) -> Saving:
        """Return a `Saving` of all names and sessions, which owns their arrays.

        This is a separate function, so that no variable of the caller keeps a written array alive.
        """
        saving = Saving(self._manifests, self._store)
        for name, tree in kept.hand_over().items():
            saving.add(tree.state(name), dict(enumerate(tree.arrays)))
        for session in sessions:
            if not session.is_on_disk():  # otherwise its manifest is still valid
                saving.add(*session.hand_over())
        return saving


class Saved:
    """The arrays of a session or a tree while they are on disk."""

    def __init__(self, manifests: Manifests, store: ArrayStore, manifest: CheckpointManifest) -> None:
        self._manifests = manifests
        self._store = store
        self._manifest = manifest

    def identities(self) -> set[int | str]:
        """Return the file names of the arrays, and the ids of arrays also in memory, to compare with other holders."""
        found = [self._store.loaded(stored) for stored in self._manifest.stored()]
        return self._manifest.files() | {id(array) for array in found if array is not None}

    def missing_bytes(self) -> Bytes:
        """Return the bytes that the arrays that are not loaded will take, by memory."""
        return bytes_of_specs(each.spec for each in self._manifest.stored() if self._store.loaded(each) is None)

    def load(self) -> dict[int, Any]:
        """Read the arrays, by handle. A lost array is `Failed`."""
        begun = time.monotonic()
        found: dict[int, Any] = {}
        for stored, handles in zip(self._manifest.arrays, self._manifest.handles, strict=True):
            found |= dict.fromkeys(handles, self._loaded(stored))
        log.info("checkpoint: loaded %d arrays in %.2f s", len(found), time.monotonic() - begun)
        return found

    def discard(self) -> None:
        """Remove the manifest, and the files that no other manifest names."""
        self._manifests.discard(self._manifest)

    def _loaded(self, stored: StoredArray | Failure) -> Any:
        if isinstance(stored, Failure):
            return Failed(stored)
        try:
            return self._store.load(stored)
        # The file is damaged or missing, or the device or the memory is insufficient.
        except Exception as error:
            log.warning("checkpoint: cannot restore an array (%s)", error)
            lost = ArrayLost(f"the daemon restarted, and could not restore this array: {error}")
            lost.__cause__ = error
            return Failed(failure_of(lost))
