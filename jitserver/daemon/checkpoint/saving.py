"""The writing of a checkpoint: first the arrays, then the manifests that name them.

The smallest arrays come first, and arrays that are still being computed come last, because they may use up the time.
Arrays for which there is no room or time are recorded as failures with that reason.
"""

import contextlib
import logging
from typing import Any

import msgspec

from jitclient.errors import ArrayLost
from jitclient.wire.messages import Failure
from jitserver.daemon.arrays.named_arrays import TreeState
from jitserver.daemon.checkpoint.manifests import CheckpointManifest, Manifests, StoredArray
from jitserver.daemon.checkpoint.store import ArrayStore
from jitserver.daemon.sessions.session import SessionState
from jitserver.programs.devices import device_arrays
from jitserver.programs.exceptions import Failed, failure_of, is_internal

log = logging.getLogger(__name__)


class Saving:
    """The writing of one checkpoint. This object owns the added arrays, and frees each array after writing it."""

    def __init__(self, manifests: Manifests, store: ArrayStore) -> None:
        self._manifests = manifests
        self._store = store
        self._drafts: list[tuple[CheckpointManifest, list[int]]] = []
        self._left: dict[int, Any] = {}  # by `id`, which is unique as all are alive when writing begins
        self._done: dict[int, Any] = {}  # StoredArray or Failure, by `id`
        self._written: list[int] = []  # in the order of writing

    def add(self, owner: SessionState | TreeState, arrays: dict[int, Any]) -> None:
        """Take over the arrays of a session, or the leaves of a tree."""
        handles: dict[int, list[int]] = {}
        for handle, value in arrays.items():
            handles.setdefault(id(value), []).append(handle)
            self._left[id(value)] = value
        self._drafts.append((CheckpointManifest(owner, list(map(tuple, handles.values())), []), list(handles)))

    def run(self, deadline: float) -> None:
        """Write everything, as far as the disk has room, and until `deadline`."""
        for manifest, _ in self._drafts:
            if isinstance(manifest.owner, TreeState):
                # Written first, for the next daemon to find if this one does not finish.
                with contextlib.suppress(OSError):
                    self._manifests.write(_without_arrays(manifest.owner, "the daemon died while it saved the arrays"))
        self._find_written()
        for number in sorted(self._left, key=lambda number: _write_order(self._left[number])):
            self._done[number] = self._write(self._left.pop(number), deadline)
            if isinstance(self._done[number], StoredArray):
                self._written.append(number)
        self._write_manifests()
        self._manifests.sweep()  # removes arrays of trees that were left out

    def _find_written(self) -> None:
        """Record the arrays that are already on disk and named by a manifest that stays."""
        for manifest in self._manifests.all():
            for stored in manifest.stored():
                number = id(self._store.loaded(stored))
                if number in self._left:
                    self._done[number] = stored
                    del self._left[number]

    def _write(self, value: Any, deadline: float) -> StoredArray | Failure:
        if isinstance(value, Failed):
            return value.failure
        try:
            return self._store.write(value, deadline)
        except TimeoutError:
            return _lost("had no time left to write this array to the disk")
        except OSError as error:
            return _disk_full(error)
        except Exception as error:  # its computation may have failed for any reason
            return _lost(f"its device failed: {error}") if is_internal(error) else failure_of(error)

    def _write_manifests(self) -> None:
        while failed := self._try_manifests():
            error = failed[-1][1]
            if not self._written:
                log.warning(
                    "checkpoint: cannot save %d sessions or named trees (%s). They are lost.", len(failed), error
                )
                for manifest, _ in failed:
                    self._manifests.note_lost(manifest)
                return
            number = self._written.pop()  # removing the largest array makes room for the manifests
            self._store.remove(self._done[number])
            self._done[number] = _disk_full(error)
        log.info("checkpoint: saved %d sessions and named trees", len(self._drafts))

    def _try_manifests(self) -> list[tuple[CheckpointManifest, OSError]]:
        failed = []
        for draft, numbers in self._drafts:
            manifest = msgspec.structs.replace(draft, arrays=[self._done[number] for number in numbers])
            failures = [failure.text for failure in manifest.arrays if isinstance(failure, Failure)]
            if isinstance(manifest.owner, TreeState) and failures:  # a name holds a complete tree or nothing
                log.warning("the arrays kept as %r are lost: %s", manifest.owner.name, failures[0])
                manifest = _without_arrays(manifest.owner, failures[0])
            try:
                self._manifests.write(manifest)
            except OSError as error:
                failed.append((manifest, error))
        return failed


def _without_arrays(tree: TreeState, why: str) -> CheckpointManifest:
    return CheckpointManifest(msgspec.structs.replace(tree, why_lost=tree.why_lost or why), [], [])


def _write_order(value: Any) -> tuple[bool, int]:
    if isinstance(value, Failed) or value.is_deleted():
        return False, 0
    try:
        return not device_arrays.is_ready(value), value.nbytes
    # Writing the array will report the error, or succeed; the other arrays must not be lost.
    except Exception:
        return True, value.nbytes


def _disk_full(error: OSError) -> Failure:
    return _lost(f"could not write this array to the disk: {error}")


def _lost(why: str) -> Failure:
    return failure_of(ArrayLost(f"the daemon restarted, and {why}"))
