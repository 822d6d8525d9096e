"""Successive daemons on the same folder, without processes."""

import math
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from jitclient.wire.messages import Spec
from jitserver.daemon.arrays.named_arrays import NamedArrays, NamedTree
from jitserver.daemon.checkpoint.checkpoint import Checkpoint
from jitserver.daemon.checkpoint.store import ArrayStore
from jitserver.daemon.sessions.registry import Sessions
from jitserver.daemon.sessions.session import DaemonSession, EntryOf
from jitserver.programs.devices import device_arrays
from jitserver.store import checked_files

SAVED = ("arrays", "manifests")


class Daemon:
    """The part of a daemon that the next one restores: sessions and named trees."""

    def __init__(self, root: Path, entry_of: EntryOf = lambda key: None) -> None:
        self.root = root
        self.kept, self.sessions = NamedArrays(), Sessions()
        self.checkpoint = Checkpoint(root)
        self.checkpoint.restore(self.kept, self.sessions, entry_of)

    def begin(self, held: dict[int, Any], pid: int = 0) -> DaemonSession:
        session, _ = self.sessions.begin(pid or os.getpid())
        session.arrays |= held
        return session

    def keep(self, name: str, leaves: Iterable[Any], ttl: float | None = None) -> NamedTree:
        leaves = list(leaves)
        for leaf in leaves:
            device_arrays.share(leaf)
        specs = tuple(Spec(leaf.shape, str(leaf.dtype)) for leaf in leaves)
        tree = NamedTree(f"key of {name}", specs, b"tree", "[...]", leaves, ttl)
        self.kept.put(name, tree)
        return tree

    def leave(self, deadline: float = math.inf) -> None:
        self.sessions.freeze()
        self.checkpoint.save(self.kept, self.sessions.all(), deadline)

    def restart(self, deadline: float = math.inf) -> "Daemon":
        self.leave(deadline)
        return Daemon(self.root)

    def resume(self, token: bytes) -> DaemonSession | None:
        resumed = self.sessions.resume(token, os.getpid())
        return resumed and resumed[0]

    def back(self, session: DaemonSession) -> DaemonSession:
        found = self.resume(session.token)
        assert found is not None
        return found

    def leaves(self, name: str) -> list[Any]:
        tree = self.kept.all()[name]
        assert self.kept.load(name, tree)
        return list(tree.arrays)

    def names(self) -> list[str]:
        """The names that hold trees."""
        return [name for name, tree in self.kept.all().items() if not tree.why_lost]

    def lost(self) -> dict[str, str]:
        """The names whose trees are lost, and why. It forgets them."""
        lost = {name: tree.why_lost for name, tree in self.kept.all().items() if tree.why_lost}
        assert not any(self.kept.load(name, self.kept.all()[name]) for name in lost)
        for name in lost:
            self.kept.forget(name)
        return lost

    def files(self, folder: str) -> list[Path]:
        return sorted((self.root / folder).iterdir())

    def is_empty(self) -> bool:
        return not any(self.files(folder) for folder in SAVED)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


@pytest.fixture
def daemon(root: Path) -> Daemon:
    return Daemon(root)


@pytest.fixture
def full_after(root: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Simulates a disk with room for so many bytes."""
    write_array: Any = ArrayStore.write
    write_file: Any = checked_files.write

    def check(most: int) -> None:
        if sum(path.stat().st_size for folder in SAVED for path in (root / folder).iterdir()) > most:
            raise OSError(28, "No space left on device")

    def fill(most: int) -> None:
        def write(store: ArrayStore, array: Any, deadline: float) -> Any:
            stored = write_array(store, array, deadline)
            try:
                check(most)
            except OSError:
                store.remove(stored)
                raise
            return stored

        def write_manifest(path: Path, chunks: Any) -> None:
            write_file(path, chunks)
            try:
                check(most)
            except OSError:
                path.unlink()
                raise

        monkeypatch.setattr(ArrayStore, "write", write)
        monkeypatch.setattr(checked_files, "write", write_manifest)

    return fill
