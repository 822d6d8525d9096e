"""Declared inputs from outside Python's objects: `jit(f, deps=[...])`."""

import dataclasses
import os
import re
import stat
import time
from collections.abc import Hashable, Iterable, Iterator
from pathlib import Path, PurePath
from typing import Any

from jitclient.codec.plain import is_plain
from jitclient.digests import digest, file_digest

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SETTLED_SECONDS = 2.0
"""A file that changed so recently is read each time: it may change again and show the same time, as disks' clocks tick
slowly."""
_LONGEST = 80


@dataclasses.dataclass(frozen=True)
class Input:
    """A declared input as it was found at one moment.

    Attributes:
        label: what its user calls it.
        text: what it was, in a few words; empty for the content of files; None where the capture of `extra` has better.
        stamp: cheap to take again, and another one as soon as the input may be another.
        extra: what joins the capture, and so the key.
    """

    label: str
    text: str | None
    stamp: Hashable
    extra: Any


@dataclasses.dataclass(frozen=True)
class Deps:
    """What a function says that it reads while it is traced.

    A `pathlib.Path` is a file, whose content counts, wherever it lies, or a folder, where names below it count too; a
    string is the name of a variable of the environment; anything else is a value. A value counts as it is when a
    program is made; files and variables are looked at before each call.
    """

    declared: tuple[Any, ...]

    @classmethod
    def of(cls, declared: Iterable[Any] | None) -> "Deps | None":
        """The declared inputs; None where nothing was said.

        Raises:
            TypeError: a single string or path in place of a sequence, or an item that says nothing.
        """
        if declared is None:
            return None
        if isinstance(declared, (str, bytes, PurePath)) or not isinstance(declared, Iterable):
            raise TypeError(f"deps takes a sequence of inputs; got {declared!r}")
        given = tuple(declared)
        for dep in given:
            if isinstance(dep, str) and not _VARIABLE.fullmatch(dep):
                raise TypeError(f"deps: {dep!r} names no variable of the environment; a file is a pathlib.Path")
            if isinstance(dep, PurePath) and not isinstance(dep, Path):
                raise TypeError(f"deps: {dep!r} is no path of this machine; a file is a pathlib.Path")
        return cls(given)

    def now(self) -> tuple[Input, ...]:
        """What they are at this moment."""
        return tuple(_found(number, dep) for number, dep in enumerate(self.declared))

    def still(self, inputs: tuple[Input, ...]) -> bool:
        """Whether files and variables are as they were found."""
        pairs = zip(self.now(), inputs, strict=True)
        return all(now.extra is then.extra or (is_plain(now.extra) and now.extra == then.extra) for now, then in pairs)

    def stamp(self) -> Hashable:
        """The stamps of what they are at this moment."""
        return tuple(_stamp(dep) for dep in self.declared)


def stamp_of(inputs: Iterable[Input]) -> Hashable:
    """What `Deps.stamp` gives as long as the inputs are these."""
    return tuple(found.stamp for found in inputs)


def _found(number: int, dep: Any) -> Input:
    if isinstance(dep, Path):
        stamp, content = _look(dep, closely=True)
        label = f"{dep}: content".encode(errors="backslashreplace").decode()
        return Input(label, content if content in _NO_CONTENT else "", stamp, (number, "content", content))
    if isinstance(dep, str):
        value = os.environ.get(dep)
        return Input(repr(dep), "unset" if value is None else f"{value!r:.{_LONGEST}}", value, (number, dep, value))
    if is_plain(dep):
        return Input(str(number), f"{dep!r:.{_LONGEST}}", id(dep), (number, "value", dep))
    return Input(str(number), None, id(dep), dep)


def _stamp(dep: Any) -> Hashable:
    if isinstance(dep, Path):
        return _look(dep, closely=False)[0]
    return os.environ.get(dep) if isinstance(dep, str) else id(dep)


# ---- files and folders

_MISSING, _UNREADABLE, _NO_FILE = _NO_CONTENT = ("missing", "unreadable", "no file")


def _look(path: Path, closely: bool) -> tuple[Hashable, str]:
    """The stamp of a file or folder, and a digest of its content, which means something where we look closely."""
    if not os.path.isdir(path):
        return _look_at_file(path, closely)
    found = [(name, *_look_at_file(below, closely)) for name, below in _below(path)]
    contents = repr([(name, content) for name, _, content in found])
    return tuple((name, stamp) for name, stamp, _ in found), digest(contents.encode()).hex()


def _look_at_file(path: Path, closely: bool) -> tuple[Hashable, str]:
    try:
        found = path.stat()
    except (OSError, ValueError):  # a loop of links or an impossible name is no file either
        return _MISSING, _MISSING
    if not stat.S_ISREG(found.st_mode):  # to read a pipe would wait, and take what is in it
        return _NO_FILE, _NO_FILE
    # Some of the files that the kernel makes up have no size, and no time of their own.
    is_settled = found.st_size > 0 and found.st_ctime < time.time() - _SETTLED_SECONDS
    content = _digest_of_file(path) if closely or not is_settled else ""
    stamp = found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
    return (stamp, "" if is_settled else content), content


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


def _digest_of_file(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            return file_digest(file).hex()
    except OSError:  # the function will meet it too, and may know what to do
        return _UNREADABLE
