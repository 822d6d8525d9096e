"""History of the runs of this environment: the imports and JAX operations that the next helper does in advance.

The history names modules of installed packages only: the user's own modules may change from run to run.
"""

import atexit
import contextlib
import functools
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec

from jitclient.core import file_lock
from jitclient.core.file_stamp import FileStamp, file_stamp
from jitclient.errors import SettingsError
from jitserver.run import verdict
from jitserver.run.request import Command

_PACKAGES_WITH_STATE = ("numpy", "scipy", "matplotlib", "pandas")
"""Packages that come before all others: these change their settings, or use the native threads of numpy."""
_MAX_MODULES = 20_000
_MAX_OPERATIONS = 250
_MAX_FRESH = 100


class History(msgspec.Struct):
    """Content of the history file.

    `modules` are names. `operations` are recipes in hexadecimal digits. `fresh` are programs that must run in fresh
    processes. `seed` is the hash seed.
    """

    modules: list[str] = []
    operations: list[Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{2})+$")]] = []
    fresh: list[str] = []
    seed: Annotated[int, msgspec.Meta(ge=0, lt=2**32)] = 0


_known: set[str] = set()
"""Modules and operations in the file at its last read, in this process or before it was forked."""


def modules() -> list[str]:
    """Return the names of the modules, in the order in which their imports finished, but packages before their parts.

    A package that is imported first imports its modules in its own order, and their side effects are attributed to it.
    """
    found = _read().modules
    _known.update(found)
    names = dict.fromkeys(found)
    names = dict.fromkeys(above for name in names for above in verdict.with_packages(name) if above in names)
    return sorted(names, key=lambda name: name.partition(".")[0] not in _PACKAGES_WITH_STATE)


def operations() -> list[bytes]:
    """Return the recipes of operations, those of the last runs first."""
    found = _read().operations
    _known.update(found)
    return [bytes.fromhex(text) for text in reversed(found)]


def note_at_exit() -> None:
    """At the exit of this process, add its imported modules and traced operations to the history."""
    pid = os.getpid()
    atexit.register(lambda: _note() if os.getpid() == pid else None)


def note_fresh(command: Command, cwd: str) -> None:
    """Add a program that changes, after its first output, what imports depend on: it must run in fresh processes."""
    with contextlib.suppress(OSError, SettingsError), _change() as content:  # the next run finds it again
        others = [one for one in content.fresh if one != _program(command, cwd)]
        content.fresh = [*others, _program(command, cwd)][-_MAX_FRESH:]


def must_be_fresh(command: Command, cwd: str) -> bool:
    """Return whether a program was added by `note_fresh`."""
    return _program(command, cwd) in fresh_programs()


def fresh_programs() -> frozenset[str]:
    """Return the programs that were added by `note_fresh`. Cached until the history changes."""
    return _fresh_programs(version())


@functools.lru_cache(maxsize=1)
def _fresh_programs(_: FileStamp) -> frozenset[str]:
    return frozenset(_read().fresh)


def _program(command: Command, cwd: str) -> str:
    return f"-m {command.name}" if command.is_module else os.path.realpath(os.path.join(cwd, command.name))


def path() -> Path:
    """Return the path of the history file.

    Raises:
        OSError, SettingsError: there is no directory for the file.
    """
    from jitclient.core import directories

    return directories.environment_directory() / "imports.json"


def version() -> FileStamp:
    """Return a value that changes when the history changes."""
    try:
        return file_stamp(path())
    except OSError:
        return None


def hash_seed() -> int:
    """Return the hash seed of this environment's helpers: a common seed gives sets the same order in all their runs."""
    content = _read()
    if content.seed:
        return content.seed
    seed = int.from_bytes(os.urandom(4), "little") or 1
    with contextlib.suppress(OSError, SettingsError), _change() as content:
        content.seed = content.seed or seed  # another process may have chosen one
    return content.seed or seed


def _note() -> None:
    # A failure here does not matter to the user of the program.
    with contextlib.suppress(Exception):
        if _new_modules() or _new_operations():
            with _change() as content:
                # Other runs may have added entries.
                _known.update(content.modules, content.operations)
                content.modules = [*content.modules, *_new_modules()][:_MAX_MODULES]
                content.operations = [*content.operations, *_new_operations()][-_MAX_OPERATIONS:]


def _new_modules() -> list[str]:
    from jitclient.capture.user_code.installed import OWN_PACKAGES, package_of

    new = [name for name in list(sys.modules) if name not in _known]
    packages = {
        top
        for top in {name.partition(".")[0] for name in new}
        if (top in OWN_PACKAGES and top != __package__.partition(".")[0]) or package_of(top) is not None
    }
    return [name for name in new if name.partition(".")[0] in packages]


def _new_operations() -> list[str]:
    reuse = sys.modules.get("jitclient.jaxside.operations.reuse")
    recipes = [recipe.hex() for recipe in list(reuse.traced_recipes)] if reuse else []
    return [recipe for recipe in recipes if recipe not in _known]


@contextlib.contextmanager
def _change() -> Iterator[History]:
    """Read the history for a change within a block, and write it at the end. One process changes it at a time.

    Raises:
        OSError, SettingsError: the file cannot be written.
    """
    directory = path().parent
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # a file system without locks: a change may be lost, and is found again
            number = os.open(directory, os.O_RDONLY)
            stack.callback(os.close, number)
            file_lock.lock(number)
        content = _read()
        yield content
        _write(content)


def _read() -> History:
    try:
        return msgspec.convert(json.loads(path().read_bytes()), History)
    except (OSError, ValueError, RecursionError):  # the file is missing or damaged
        return History()


def _write(content: History) -> None:
    file = path()
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        temporary.write_text(json.dumps(msgspec.to_builtins(content)))
        temporary.replace(file)
    except OSError:  # such as a full disk
        temporary.unlink(missing_ok=True)
        raise
