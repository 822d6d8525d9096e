"""Declared ambient inputs of a function: `jit(f, deps=[...])`."""

import dataclasses
import os
import re
import stat
from collections.abc import Hashable, Iterable, Iterator
from pathlib import Path, PurePath
from typing import Any

from jitclient.capture.codec.plain import is_plain
from jitclient.core.clock import time
from jitclient.core.digests import digest, file_digest
from jitclient.core.file_stamp import stamp_from

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SETTLED_SECONDS = 2.0
"""Age below which a changed file is read each time: it may change again within one tick of its timestamp."""
_MAX_LENGTH = 80


@dataclasses.dataclass(frozen=True)
class Input:
    """State of a declared input."""

    label: str  # name for the user
    # Short form of the value; "" for the content of files, and for objects whose text may run the user's code.
    text: str
    # Cheap to compute, and different as soon as the input may differ.
    stamp: Hashable
    extra: Any  # part of the capture, and so of the key

    def described(self) -> tuple[str, str, bytes]:
        """Return label, text and digest of the value for explanations; no digest if the user's code might run."""
        is_data = _is_data(self.extra)
        return self.label, self.text, digest(repr(self.extra).encode(errors="replace"), 8) if is_data else b""


@dataclasses.dataclass(frozen=True)
class Deps:
    """Declared inputs of a function.

    A `pathlib.Path` is a file, whose content counts but not its place, or a directory, for which the names of the files
    below it count, too. A string is an environment variable. Any other object is a value, read when a program is made;
    files and variables are checked before each call.
    """

    declared: tuple[Any, ...]

    @classmethod
    def of(cls, declared: Iterable[Any] | None) -> "Deps | None":
        """Return the declared inputs; None if none were declared.

        Raises:
            TypeError: an input has an invalid form.
        """
        if declared is None:
            return None
        if isinstance(declared, (str, bytes, PurePath)) or not isinstance(declared, Iterable):
            raise TypeError(f"deps takes a sequence of inputs; got {declared!r}")
        given = tuple(declared)
        for dep in given:
            if isinstance(dep, str) and not _VARIABLE.fullmatch(dep):
                raise TypeError(
                    f"deps: {dep!r} does not name an environment variable. For a file, pass a pathlib.Path."
                )
            if isinstance(dep, PurePath) and not isinstance(dep, Path):
                raise TypeError(f"deps: {dep!r} is not a path of this machine. For a file, pass a pathlib.Path.")
        return cls(given)

    def now(self) -> tuple[Input, ...]:
        """Return the current state of the inputs."""
        return tuple(_found(number, dep) for number, dep in enumerate(self.declared))

    def still(self, inputs: tuple[Input, ...]) -> bool:
        """Return whether files and variables still have the state `inputs`."""
        pairs = zip(self.now(), inputs, strict=True)
        return all(now.extra is then.extra or (is_plain(now.extra) and now.extra == then.extra) for now, then in pairs)

    def stamp(self) -> Hashable:
        """Return the current stamps of the inputs."""
        return tuple(_stamp(dep) for dep in self.declared)


def stamp_of(inputs: Iterable[Input]) -> Hashable:
    """Return the result of `Deps.stamp` as long as the inputs have this state."""
    return tuple(found.stamp for found in inputs)


def _found(number: int, dep: Any) -> Input:
    if isinstance(dep, Path):
        stamp, content = _examine(dep, in_full=True)
        label = f"{dep}: content".encode(errors="backslashreplace").decode()
        return Input(label, content if content in _NO_CONTENT else "", stamp, (number, "content", content))
    if isinstance(dep, str):
        value = os.environ.get(dep)
        return Input(repr(dep), "unset" if value is None else f"{value!r:.{_MAX_LENGTH}}", value, (number, dep, value))
    text = f"{dep!r:.{_MAX_LENGTH}}" if _is_data(dep) else ""
    return Input(str(number), text, id(dep), (number, "value", dep) if is_plain(dep) else dep)


def _stamp(dep: Any) -> Hashable:
    if isinstance(dep, Path):
        return _examine(dep, in_full=False)[0]
    return os.environ.get(dep) if isinstance(dep, str) else id(dep)


# ---- files and directories

_MISSING, _UNREADABLE, _NO_FILE = _NO_CONTENT = ("missing", "unreadable", "no file")


def _examine(path: Path, in_full: bool) -> tuple[Hashable, str]:
    """Return the stamp of a file or directory, and a digest of its content, which is valid only if `in_full`."""
    if not os.path.isdir(path):
        return _examine_file(path, in_full)
    found = [(name, *_examine_file(below, in_full)) for name, below in _below(path)]
    contents = repr([(name, content) for name, _, content in found])
    return tuple((name, stamp) for name, stamp, _ in found), digest(contents.encode()).hex()


def _examine_file(path: Path, in_full: bool) -> tuple[Hashable, str]:
    try:
        found = path.stat()
    except (OSError, ValueError):
        # Also raised for a loop of links, or an invalid name.
        return _MISSING, _MISSING
    # Reading a pipe would block, and consume its data.
    if not stat.S_ISREG(found.st_mode):
        return _NO_FILE, _NO_FILE
    # Files in /proc and /sys have no size and no modification time.
    is_settled = found.st_size > 0 and found.st_ctime < time() - _SETTLED_SECONDS
    content = _digest_of_file(path) if in_full or not is_settled else ""
    stamp = found.st_dev, *stamp_from(found)
    return (stamp, "" if is_settled else content), content


def _below(directory: Path) -> Iterator[tuple[str, Path]]:
    """Yield all files and directories below a directory, in a fixed order; enter each directory once."""
    seen: set[str] = set()
    for above, directories, files in os.walk(directory, followlinks=True):
        real = os.path.realpath(above)
        if real in seen:
            directories.clear()
            continue
        seen.add(real)
        directories.sort()
        for name in sorted([*directories, *files]):
            path = Path(above, name)
            yield os.path.relpath(path, directory), path


def _digest_of_file(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            return file_digest(file).hex()
    except OSError:
        # The function will get the same error, and may handle it.
        return _UNREADABLE


def _is_data(value: Any) -> bool:
    from jitclient.capture.codec.values import is_self_contained  # rarely needed before the first call

    return is_plain(value) or is_self_contained(value)
