"""Verdict of an audit (`audit.py`): which modules a helper may import in advance, and how they depend on a process."""

import json
import os
import stat
from collections.abc import Iterable, Mapping, Set
from pathlib import Path

import msgspec

from jitclient.core import directories
from jitclient.core.file_stamp import FileStamp, file_stamp
from jitclient.errors import SettingsError

LEFT = "is left to the runs"
"""End of the reason why a module is unfit that has no reason of its own."""

_MAX_VERDICTS = 20


class Access(msgspec.Struct, array_like=True):
    """Access of an import to one environment variable, or to all of a prefix.

    Attributes:
        name: name of the variable, or the prefix.
        value: what was read or set: None if there is no variable, the items of a prefix.
        running: modules whose code was running: the one that was imported, and those whose functions it called.
        imported: module that was imported.
        batch: which import of the audit it was; each may import many modules.
        is_write: whether the variable was set or deleted.
    """

    name: str
    value: str | dict[str, str] | None
    running: list[str]
    imported: str
    batch: int
    is_write: bool


class Filter(msgspec.Struct, array_like=True):
    """Filter of warnings that the import of a module adds, as `warnings.filters` has it.

    Attributes:
        module: the module.
        action: the action.
        message: pattern of the message and its flags, or None.
        category: module and name of the class.
        where: pattern of the module and its flags, or None.
        line: number of the line.
        append: whether the filter comes last.
    """

    module: str
    action: str
    message: tuple[str, int] | None
    category: tuple[str, str]
    where: tuple[str, int] | None
    line: int
    append: bool


class Verdict(msgspec.Struct):
    """Result of an audit.

    Attributes:
        fit: modules that a helper may import, in this order.
        unfit: modules and operations that are left to the runs, and why.
        imports: modules that the import of each module imports, whether or not others have imported them before.
        accesses: accesses to environment variables, in their order.
        variables: the variables that imports have read, with their values, or None.
        askers: modules that ask whether a standard stream is a terminal, by its number.
        temporary: modules that ask for the directory for temporary files, which Python stores.
        loggers: names of the loggers that each module asks for.
        set_by: modules that have set each logger.
        messages: loggers and levels of the messages that each module logs, and whether they were shown.
        filters: filters of warnings that imports add, in their order.
        relative: relative paths that imports have looked up.
        files: stamps of all files that imports have executed or read, and of the directories in which they were found.
        kinds: types of the files that imports have only looked up, by path; 0 if there was none.
    """

    fit: list[str] = []
    unfit: dict[str, str] = {}
    imports: dict[str, list[str]] = {}
    accesses: list[Access] = []
    variables: dict[str, str | None] = {}
    askers: dict[int, list[str]] = {}
    temporary: list[str] = []
    loggers: dict[str, list[str]] = {}
    set_by: dict[str, list[str]] = {}
    messages: dict[str, list[tuple[str, int, bool]]] = {}
    filters: list[Filter] = []
    relative: list[str] = []
    files: dict[str, FileStamp] = {}
    kinds: dict[str, int] = {}

    def changed(self) -> str:
        """Return what has changed on the disk since the audit; empty if nothing has."""
        for path, stamp in self.files.items():
            if file_stamp(path) != stamp:
                return f"{path} has changed since it was imported"
        for path, kind in self.kinds.items():
            if kind_of_file(path) != kind:
                return f"{path}, which imports looked up, was created or deleted"
        return ""

    def finds_other_files(self, cwd: str) -> str:
        """Return a relative path that imports have looked up, and that exists in a directory; empty if there is none.

        Audits and helpers have no such file in their working directory.
        """
        return next((path for path in self.relative if os.path.lexists(os.path.join(cwd, path))), "")

    def differs(self, environment: Mapping[str, str]) -> str:
        """Return the name of a variable that imports have read, with another value than now; empty if there is none."""
        prefixes = tuple(each.name for each in self.accesses if isinstance(each.value, dict))
        more = {name for name in environment if name.startswith(prefixes)} if prefixes else set[str]()
        names = sorted({*self.variables, *more})
        return next((name for name in names if environment.get(name) != self.variables.get(name)), "")

    def closure(self, name: str) -> list[str]:
        """Return all modules that were imported for a module, whether its import or an earlier one did so, and itself.

        They are in the order in which the imports would finish in a process that has imported none of them.
        """
        order, begun, left = [], set(), [(name, False)]
        while left:
            each, is_done = left.pop()
            package = each.rpartition(".")[0]
            if is_done:
                order.append(each)
            elif each in begun:
                continue
            elif package in self.imports.get(each, ()) and package not in begun:
                # The package is first, and may import the module itself.
                left += [(each, False), (package, False)]
            else:
                begun.add(each)
                left.append((each, True))
                left += [(inner, False) for inner in reversed(self.imports.get(each, ()))]
        return order

    def add_import(self, importer: str, names: Iterable[str]) -> None:
        """Add modules that are imported for a module; the import of each imports the packages above it."""
        known = self.imports.setdefault(importer, [])
        for name in dict.fromkeys(names):
            if name not in known:
                known.append(name)
                package = name.rpartition(".")[0]
                if package:
                    above = self.imports.setdefault(name, [])
                    above += [] if package in above else [package]

    def replay(self, modules: Set[str], environment: Mapping[str, str]) -> tuple[dict[str, str | None], str]:
        """Compare what the imports of some modules have read with an environment in which they would happen.

        Args:
            modules: the modules, which would all be imported now.
            environment: the variables.

        Returns:
            The variables that the imports set, with None for those that they delete; and the name of a variable for
            which the imports would read another value, or empty.
        """
        written: dict[str, Access] = {}
        read: dict[str, tuple[object, int]] = {}
        for each in self.accesses:
            if each.is_write and each.imported in modules:
                value, batch = read.get(each.name, (each.value, each.batch))
                if value != each.value and batch != each.batch:
                    # Which import would be first depends on the program.
                    return {}, each.name
                written[each.name] = each
            elif not each.is_write and not modules.isdisjoint(each.running):
                if isinstance(each.value, dict):
                    now: object = with_prefix(each.name, environment)
                else:
                    now = written[each.name].value if each.name in written else environment.get(each.name)
                if now != each.value:
                    return {}, each.name
                read[each.name] = each.value, each.batch
        return {name: each.value for name, each in written.items()}, ""  # type: ignore[misc]

    def differs_in_terminals(self, modules: Set[str], terminal: bool) -> str:
        """Return what imports of modules asked about terminals and would find otherwise now; empty if nothing.

        Args:
            modules: the modules.
            terminal: whether the imports saw the standard streams as terminals.
        """
        for number in range(3):
            if not modules.isdisjoint(self.askers.get(number, ())) and os.isatty(number) != terminal:
                answer = "no" if terminal else "yes"
                return f"imports ask whether file {number} is a terminal, and the answer is {answer} now"
        return ""


def read(helper: str) -> Verdict | None:
    """Return the verdict of the last audit for a helper, or None if there is none that holds for this process.

    Args:
        helper: the key that selects the helper.
    """
    try:
        found = _read(_path(helper))
    except (OSError, SettingsError):
        return None
    return None if found is None or found.changed() or found.differs(os.environ) else found


def newest() -> Verdict | None:
    """Return the verdict of the last audit in this environment, or None if there is none.

    Raises:
        OSError, SettingsError: there is no directory for it.
    """
    return _read(_sorted()[-1]) if _sorted() else None


def write(helper: str, verdict: Verdict) -> None:
    """Write the verdict for a helper.

    Raises:
        OSError, SettingsError: the file cannot be written.
    """
    file = _path(helper)
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        temporary.write_text(json.dumps(msgspec.to_builtins(verdict)))
        temporary.replace(file)
    except OSError:  # such as a full disk
        temporary.unlink(missing_ok=True)
        raise
    for old in _sorted()[:-_MAX_VERDICTS]:
        old.unlink(missing_ok=True)


def kind_of_file(path: str) -> int:
    """Return the type of the file at a path; 0 if there is none."""
    try:
        return stat.S_IFMT(os.stat(path).st_mode)
    except (OSError, ValueError):
        return 0


def with_prefix(prefix: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables whose names begin with a prefix."""
    return {name: value for name, value in environment.items() if name.startswith(prefix)}


def with_packages(name: str) -> list[str]:
    """Return the names of the packages of a module, from the top, and its own."""
    parts = name.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts) + 1)]


def _path(helper: str) -> Path:
    return directories.environment_directory() / f"verdict-{helper}.json"


def _sorted() -> list[Path]:
    """Return the files of verdicts, the newest last."""
    found = directories.environment_directory().glob("verdict-*.json")
    return sorted(found, key=lambda path: path.stat().st_mtime)


def _read(path: Path) -> Verdict | None:
    try:
        return msgspec.convert(json.loads(path.read_bytes()), Verdict, str_keys=True)
    except (OSError, ValueError, RecursionError):  # it is missing or damaged
        return None
