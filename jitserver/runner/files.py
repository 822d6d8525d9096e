"""Files of the user's that a watched program uses: their contents when a run began, and which were saved since."""

import contextlib
import dataclasses
import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from jitserver.run.record import UsedFile
from jitserver.runner.affected import module_name
from jitserver.runner.changes import Changes, Outline, compare, outline

_MAX_NAMES = 6
_Stamp = tuple[int, int, int]


class Saved(NamedTuple):
    """File that was saved.

    Attributes:
        path: path of the file.
        changes: differences from the version that the last run used; None if they are unknown.
        is_python: whether the file is valid Python now.
    """

    path: str
    changes: Changes | None
    is_python: bool = True

    def __str__(self) -> str:
        name = os.path.basename(self.path)
        if not self.is_python:
            return f"{name}, which is not valid Python"
        if self.changes is None:
            return name
        shown = [*self.changes.definitions[:_MAX_NAMES]]
        more = len(self.changes.definitions) - _MAX_NAMES
        shown += [f"{more} more"] if more > 0 else []
        shown += ["module-level code"] if self.changes.rest else []
        listed = " and ".join(filter(None, [", ".join(shown[:-1]), *shown[-1:]]))
        return f"{listed or 'only comments, docstrings or layout'} in {name}"

    @property
    def names(self) -> list[frozenset[str]]:
        """The names that a capture with the changed code has, for each function, class or module that changed."""
        if not self.changes:
            return []
        folder, name = os.path.split(self.path)
        module = os.path.basename(folder) if name == "__init__.py" else name.removesuffix(".py")
        changed = [frozenset(name.split(".")) for name in self.changes.definitions]
        return [*changed, frozenset([module_name(module)])]

    @property
    def may_change_all(self) -> bool:
        """Whether the values of any program may differ."""
        return self.changes is None or self.changes.rest


@dataclasses.dataclass
class _File:
    """Version of a file that a run used.

    Attributes:
        content: the content; None if it was changed before it could be read.
        stamp: the identity of that version; None if the file was missing.
        seen: the identity of a newer version that may be incomplete.
        valid: the outline of the newest version that is valid Python.
    """

    content: bytes | None = None
    stamp: _Stamp | None = None
    seen: _Stamp | None = None
    valid: Outline | None = None


class WatchedFiles:
    """Files that a watched program uses. A file that is gone stays among them, because it may appear again."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._files: dict[str, _File] = {}
        for path in paths:
            self._files[path] = _read(path)

    def __len__(self) -> int:
        return len(self._files)

    def directories(self) -> list[str]:
        """Return the existing directories of the files, which also show a file that another one replaces."""
        return sorted({folder for path in self._files if os.path.isdir(folder := os.path.dirname(path))})

    def add(self, used: Iterable[UsedFile]) -> None:
        """Add the files that a run has executed."""
        for path, mtime_ns in used:
            if path not in self._files:
                found = _read(path)
                is_used_version = found.stamp is not None and found.stamp[0] == mtime_ns
                self._files[path] = found if is_used_version else _File()

    def keep(self, paths: Iterable[str]) -> None:
        """Remove all other files."""
        kept = {*paths}
        self._files = {path: file for path, file in self._files.items() if path in kept}

    def saved(self, is_settled: bool, with_equal: bool) -> list[Saved]:
        """Return the files that were saved since the last call, which become the versions that the next run uses.

        Args:
            is_settled: whether all writes are surely complete. Otherwise a file counts only if it has not changed
                between two calls.
            with_equal: whether to include files that were saved without a change.
        """
        found = []
        for path, file in self._files.items():
            stamp = _stamp_of(path)
            if stamp is None or stamp == file.stamp:
                continue
            is_complete, file.seen = is_settled or file.seen == stamp, stamp
            newer = _read(path) if is_complete else _File()
            if newer.content is None:
                continue
            if newer.content != file.content or with_equal:
                found.append(_compared(path, file, newer))
            file.content, file.stamp = newer.content, newer.stamp
        return found


def _compared(path: str, before: _File, after: _File) -> Saved:
    old = (outline(before.content) if before.content is not None else None) or before.valid
    new = outline(after.content or b"")
    before.valid = new or old
    return Saved(path, compare(old, new) if old and new else None, new is not None)


def _read(path: str) -> _File:
    with contextlib.suppress(OSError):
        return _File(stamp=_stamp_of(path), content=Path(path).read_bytes())
    return _File()


def _stamp_of(path: str) -> _Stamp | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
