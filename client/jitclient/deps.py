"""Declared inputs from outside Python's objects: `jit(f, deps=[...])`."""

import dataclasses
import hashlib
import os
import re
from collections.abc import Hashable, Iterable, Iterator
from pathlib import Path
from typing import Any

Resolved = tuple[tuple[str, Any], ...]

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclasses.dataclass(frozen=True)
class Deps:
    """What a function says that it reads while it is traced.

    A `pathlib.Path` is a file, whose content counts, wherever it lies, or a folder, where names below it count too; a
    string is the name of a variable of the environment; anything else is a value.
    """

    declared: tuple[Any, ...]

    @classmethod
    def of(cls, declared: Iterable[Any] | None) -> "Deps | None":
        """The declared inputs; None where nothing was said.

        Raises:
            TypeError: a single string or path in place of a sequence, or a string that names no variable.
        """
        if declared is None:
            return None
        if isinstance(declared, (str, bytes, Path)):
            raise TypeError(f"deps takes a sequence of inputs; got {declared!r}")
        given = tuple(declared)
        for dep in given:
            if isinstance(dep, str) and not _VARIABLE.fullmatch(dep):
                raise TypeError(f"deps: {dep!r} names no variable of the environment; a file is a pathlib.Path")
        return cls(given)

    def now(self) -> Resolved:
        """What they are at this moment: the content of files as a digest, the values of variables."""
        return tuple(map(_resolved, self.declared))

    def differ(self, before: Resolved) -> bool:
        """Whether files or variables are otherwise than they were."""
        pairs = zip(self.now(), before, strict=True)
        return any(name != "value" and now != then for (name, now), (_, then) in pairs)

    def stamp(self) -> Hashable:
        """Something cheap that differs when what they are may have changed."""
        return tuple(_stamp(dep) for dep in self.declared)


def _resolved(dep: Any) -> tuple[str, Any]:
    if isinstance(dep, Path):
        if dep.is_dir():
            return "folder", _digest(repr([(name, _content(path)) for name, path in _below(dep)]).encode())
        return "file", _content(dep)
    if isinstance(dep, str):
        return f"environment {dep}", os.environ.get(dep)
    return "value", dep


def _stamp(dep: Any) -> Hashable:
    if isinstance(dep, Path):
        if dep.is_dir():
            return tuple((name, _stamp_of_file(path)) for name, path in _below(dep))
        return _stamp_of_file(dep)
    return os.environ.get(dep) if isinstance(dep, str) else id(dep)


def _below(folder: Path) -> Iterator[tuple[str, Path]]:
    """The files and folders in a folder, however deep, in the same order everywhere; each folder once."""
    seen: set[str] = set()
    for above, folders, files in os.walk(folder, followlinks=True):
        real = os.path.realpath(above)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders.sort()
        for name in sorted([*folders, *files]):
            path = Path(above, name)
            yield os.path.relpath(path, folder), path


def _content(path: Path) -> str | None:
    return _digest(path.read_bytes()) if path.is_file() else None


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def _stamp_of_file(path: Path) -> Hashable:
    found = path.stat() if path.exists() else None
    return found and (found.st_mtime_ns, found.st_size, found.st_ino)
