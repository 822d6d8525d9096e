"""Record of the packages that this daemon has loaded: their versions, and later changes of their files on disk."""

import contextlib
import dataclasses
import importlib.metadata
import os
import re
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

from jitclient.capture.user_code.installed import find_source, package_of
from jitclient.core.digests import digest
from jitclient.core.file_stamp import FileStamp, file_stamp

_UNCHECKED_SUFFIXES = (".pyc", ".so", ".a", ".h", ".hpp", ".pyi", ".pyx", ".pxd")
"""Endings of files that are compiled or never imported.

Such files are not checked, because each check takes microseconds per file at each start of a program.
"""


@dataclasses.dataclass(frozen=True)
class PackageFiles:
    """The files of a package, as they were when the daemon first saw the package.

    Attributes:
        name: the name of the distribution, or the import name if the package belongs to no distribution.
        content: a digest of the files' contents.
        metadata: the file that each installation replaces.
        files: the files that users may edit.
        is_recorded: whether the package belongs to a distribution.
    """

    name: str
    content: str
    metadata: dict[str, FileStamp]
    files: dict[str, FileStamp]
    is_recorded: bool = False

    @classmethod
    def of_distribution(cls, distribution: importlib.metadata.Distribution, name: str) -> "PackageFiles":
        """Return the files listed in a distribution's RECORD file.

        The RECORD contains a digest of each file. Only files edited since the installation are read.
        """
        directory = str(distribution.locate_file(""))
        files = _stamped(
            os.path.join(directory, each) for each in recorded(distribution) if not each.endswith(_UNCHECKED_SUFFIXES)
        )
        written = max((stamp[0] for file, stamp in files.items() if stamp and file.endswith("/RECORD")), default=0)
        edited = [file for file, stamp in files.items() if stamp and stamp[0] > written]
        metadata = {file: stamp for file, stamp in files.items() if file.endswith("/METADATA")}
        content = "\n".join(line for line in _record(distribution) if _is_same_everywhere(line))
        return cls(name, _digest(edited, directory, content.encode()), metadata, files, True)

    @classmethod
    def of_import(cls, name: str) -> "PackageFiles":
        """Return the source files of a package or module that belongs to no distribution."""
        spec = find_source(name) if package_of(name) is not None else None
        directories = (spec.submodule_search_locations if spec else None) or ()
        alone = [spec.origin] if spec and spec.has_location and spec.origin else []
        files = _stamped(
            [*alone, *sorted(str(file) for directory in directories for file in Path(directory).rglob("*.py"))]
        )
        return cls(name, _digest(files, os.path.dirname(next(iter(files), ""))), {}, files)

    def were_replaced(self) -> bool:
        """Return whether the package was removed, or any version of it installed, since the daemon first saw it."""
        return _differ(self.metadata)

    def were_edited(self) -> bool:
        """Return whether any file has changed. The check takes a few microseconds per file."""
        if self.is_recorded:  # a new file comes with a new RECORD
            return _differ(self.files)
        return PackageFiles.of_import(self.name).files != self.files


def recorded(distribution: importlib.metadata.Distribution) -> list[str]:
    """Return the file names in a distribution's RECORD."""
    return [line.partition(",")[0] for line in _record(distribution)]


def _record(distribution: importlib.metadata.Distribution) -> list[str]:
    return (distribution.read_text("RECORD") or "").splitlines()


def _is_same_everywhere(line: str) -> bool:
    """Return whether a line of a RECORD is the same in each environment that has the package.

    Scripts outside of the packages' directory begin with the path of the environment's Python. Installers differ in
    the compiled files that they list, and in their own notes.
    """
    file = line.partition(",")[0]
    is_note = ".dist-info/" in file and not file.endswith("/METADATA")
    return not (file.startswith("..") or file.endswith(".pyc") or is_note)


def _stamped(files: Iterable[str]) -> dict[str, FileStamp]:
    return {file: file_stamp(file) for file in files}


def _differ(files: dict[str, FileStamp]) -> bool:
    return any(file_stamp(file) != stamp for file, stamp in files.items())


def _digest(files: Iterable[str], directory: str, record: bytes = b"") -> str:
    parts = [record]
    for file in files:
        name = os.path.relpath(file, directory)
        try:
            parts += [name.encode(errors="surrogateescape"), Path(file).read_bytes()]
        except OSError:  # deleted meanwhile
            parts.append(b"")
    return digest(b"".join(b"%d:" % len(part) + part for part in parts), 6).hex()


CORE_PACKAGES = ("jitserver", "jax", "jaxlib", "numpy", "ml_dtypes", "cloudpickle")
"""Packages that all programs depend on."""


class Packages:
    """The version of each package when this daemon first saw it, which is the imported version. Thread-safe."""

    def __init__(self) -> None:
        # The lock also keeps several threads from doing the same slow work at once.
        self._lock = threading.RLock()
        self._records: dict[str, tuple[str, PackageFiles]] = {}
        self._required: dict[str, tuple[str, ...]] = {}  # by package: its distributions and their requirements
        self._installed: dict[str, importlib.metadata.Distribution] = {}
        self._seen: set[str] = set()  # top-level names in sys.modules
        self._loaded: set[str] = set(CORE_PACKAGES)
        self._distributions: dict[str, list[str]] = {}
        self._directories: dict[str, FileStamp] = {}  # of the distributions, when they were read
        self.record_loaded()
        for name in CORE_PACKAGES:
            self._records[name] = _find_record(self._distributions.get(name, [name]), name)

    def version(self, name: str) -> str:
        """Return the version of the distribution that provides an import."""
        with self._lock:
            if name not in self._records:
                if name not in self._distributions:
                    self._read_distributions()
                self._records[name] = _find_record(self._distributions.get(name, [name]), name)
            return self._records[name][0]

    def _read_distributions(self) -> None:
        """Read which distributions provide which imports, unless all their directories are as they were then."""
        directories = _stamped(sys.path)
        if directories != self._directories:
            self._directories, self._distributions = directories, _providers()

    def versions(self, names: Iterable[str]) -> dict[str, str]:
        """Return the versions of packages and of all their requirements, which may affect the packages' results.

        Each version includes a digest of the installed files, because two installations of one version can differ.
        """
        found = dict.fromkeys(names)
        for name in found:
            self.version(name)
        required = sorted({each for name in found for each in self._requirements_of(name)})
        records = {each: self._records[each] for each in (*found, *required)}
        return {each: f"{version} ({files.content})" for each, (version, files) in records.items()}

    def installed(self) -> dict[str, str]:
        """Return the versions of all distributions now in this environment; for loaded ones, the loaded versions."""
        found = [(each.name, each.version) for each in importlib.metadata.distributions()]
        now = dict(reversed(found))  # of two with the same name, Python imports the first
        with self._lock:
            loaded = {name: self._distributions.get(name, ()) for name in self._loaded}
            return now | {each: self.version(name) for name, found in loaded.items() for each in found}

    def _requirements_of(self, name: str) -> tuple[str, ...]:
        """Return the distributions of a package and their direct and indirect requirements."""
        with self._lock:
            if name not in self._required:
                self._require(name)
            return self._required[name]

    def _require(self, name: str) -> None:
        todo = [_normal(each) for each in self._distributions.get(name, ())]
        if not self._installed.keys() >= set(todo):
            self._installed = {_normal(_name(each)): each for each in importlib.metadata.distributions()}
        installed = self._installed
        found: dict[str, None] = {}
        for each in todo:  # grows during the loop
            if each in installed and each not in found:
                found[each] = None
                todo += _requirements(installed[each])
                self._records.setdefault(each, _record_of(installed[each]))
        self._required[name] = tuple(found)

    def depends_on(self, name: str, requirement: str) -> bool:
        """Return whether a package requires a distribution, directly or indirectly."""
        with self._lock:
            if name not in self._distributions:
                self._read_distributions()
        return requirement in self._requirements_of(name)

    def record_loaded(self) -> None:
        """Record the packages that were imported since the last call, including packages that no lookup names."""
        with self._lock:
            new = {name.partition(".")[0] for name in list(sys.modules)} - self._seen
            self._seen |= new
            new = {name for name in new - sys.stdlib_module_names if package_of(name) is not None}
            if not new <= self._distributions.keys():
                self._read_distributions()
            found = new & self._distributions.keys()
            for name in found:
                self.version(name)
            self._loaded |= found

    def replaced(self, names: Iterable[str] = ()) -> list[str]:
        """Return the packages that were upgraded or removed since this daemon first saw them.

        Args:
            names: packages to check in addition to the loaded ones.
        """
        named = list(names)
        required = {each for name in named for each in self._required.get(name, ())}
        wanted = sorted(self._loaded.union(named, required))
        return [name for name in wanted if name in self._records and self._records[name][1].were_replaced()]

    def edited(self) -> list[str]:
        """Return the packages with a file that changed since this daemon first saw them.

        The check reads the status of each file, which takes milliseconds.
        """
        with self._lock:
            records = {files.name: files for _, files in self._records.values()}
        return [name for name, files in records.items() if files.were_edited()]


def _providers() -> dict[str, list[str]]:
    """Return the distributions that provide each import.

    `importlib.metadata.packages_distributions` takes ten times as long: it makes an object for each file, and parses
    all descriptions.
    """
    found: dict[str, list[str]] = {}
    for each in importlib.metadata.distributions():
        for name in dict.fromkeys((each.read_text("top_level.txt") or "").split() or _imports(each)):
            found.setdefault(name, []).append(_name(each))
    return found


def _name(distribution: importlib.metadata.Distribution) -> str:
    """Return the name of a distribution, without parsing its description."""
    about = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or ""
    found = re.search(r"^Name: *(\S+)", about, re.MULTILINE)
    return found[1] if found else ""


def _imports(distribution: importlib.metadata.Distribution) -> Iterator[str]:
    """Yield the import names that the files of a distribution provide."""
    for file in recorded(distribution):
        top, _, rest = file.partition("/")
        if file.endswith((".py", ".so")) and (name := top if rest else top.partition(".")[0]).isidentifier():
            yield name


def _find_record(distributions: Iterable[str], name: str) -> tuple[str, PackageFiles]:
    for found in distributions:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return _record_of(importlib.metadata.distribution(found))
    return str(getattr(sys.modules.get(name), "__version__", "unknown")), PackageFiles.of_import(name)


def _record_of(distribution: importlib.metadata.Distribution) -> tuple[str, PackageFiles]:
    return distribution.version, PackageFiles.of_distribution(distribution, _name(distribution))


def _requirements(distribution: importlib.metadata.Distribution) -> list[str]:
    """Return the normalized names of a distribution's requirements, without those of its extras."""
    return [_normal(line) for line in distribution.requires or () if "extra ==" not in line]


def _normal(requirement: str) -> str:
    """Return the normalized name in a requirement: foo-bar for `Foo_Bar>=1; python_version > "3"`."""
    name = re.match(r"[\w.-]*", requirement.strip())
    return re.sub(r"[-_.]+", "-", name.group() if name else "").lower()
