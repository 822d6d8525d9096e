"""The files of an installed package: a digest of what is in them, and whether they have changed since."""

import dataclasses
import importlib.metadata
import os
from collections.abc import Iterable
from pathlib import Path

from jitclient.capture.user_code.installed import find_source, package_of
from jitclient.core.digests import digest

Stamp = tuple[int, ...] | None

_ENDINGS_OF_OTHERS = (".pyc", ".so", ".a", ".h", ".hpp", ".pyi", ".pyx", ".pxd")
"""What is compiled, or never imported: not looked at, as a look at each file takes microseconds at each start of a
program."""


@dataclasses.dataclass(frozen=True)
class PackageFiles:
    """The files of a package, as they were when it was met.

    Attributes:
        name: of the distribution, or of the import if that belongs to none.
        content: a digest of what is in them.
        metadata: the file that each installation replaces.
        files: all others that can be edited.
        is_recorded: whether it belongs to a distribution.
    """

    name: str
    content: str
    metadata: dict[str, Stamp]
    files: dict[str, Stamp]
    is_recorded: bool = False

    @classmethod
    def of_distribution(cls, distribution: importlib.metadata.Distribution, name: str) -> "PackageFiles":
        """Those in its RECORD, which has the digest of each; those that were edited since are read."""
        folder = str(distribution.locate_file(""))
        files = _stamped(
            os.path.join(folder, each) for each in recorded(distribution) if not each.endswith(_ENDINGS_OF_OTHERS)
        )
        written = max((stamp[0] for file, stamp in files.items() if stamp and file.endswith("/RECORD")), default=0)
        edited = [file for file, stamp in files.items() if stamp and stamp[0] > written]
        metadata = {file: stamp for file, stamp in files.items() if file.endswith("/METADATA")}
        return cls(name, _digest(edited, (distribution.read_text("RECORD") or "").encode()), metadata, files, True)

    @classmethod
    def of_import(cls, name: str) -> "PackageFiles":
        """The sources of a package or module that belongs to no distribution."""
        spec = find_source(name) if package_of(name) is not None else None
        folders = (spec.submodule_search_locations if spec else None) or ()
        alone = [spec.origin] if spec and spec.has_location and spec.origin else []
        files = _stamped([*alone, *sorted(str(file) for folder in folders for file in Path(folder).rglob("*.py"))])
        return cls(name, _digest(files), {}, files)

    def were_replaced(self) -> bool:
        """Whether another version, or this one once more, was installed since, or it was removed."""
        return _differ(self.metadata)

    def were_edited(self) -> bool:
        """Whether any file has changed. It looks at each: a few microseconds."""
        if self.is_recorded:  # a new file comes with a new RECORD
            return _differ(self.files)
        return PackageFiles.of_import(self.name).files != self.files


def recorded(distribution: importlib.metadata.Distribution) -> list[str]:
    """What the RECORD of a distribution names."""
    return [line.partition(",")[0] for line in (distribution.read_text("RECORD") or "").splitlines()]


def _stamped(files: Iterable[str]) -> dict[str, Stamp]:
    return {file: _stamp(file) for file in files}


def _differ(files: dict[str, Stamp]) -> bool:
    return any(_stamp(file) != stamp for file, stamp in files.items())


def _stamp(file: str) -> Stamp:
    try:
        stat = os.stat(file)
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino, stat.st_size


def _digest(files: Iterable[str], record: bytes = b"") -> str:
    parts = [record]
    for file in files:
        try:
            parts += [file.encode(errors="surrogateescape"), Path(file).read_bytes()]
        except OSError:  # it went meanwhile
            parts.append(b"")
    return digest(b"".join(b"%d:" % len(part) + part for part in parts), 6).hex()
