"""What the runs of this environment have done that the next helper is to do first: which modules of installed packages
they have imported, and which operations of JAX they have traced.

Never the user's own modules: those may change from run to run.
"""

import atexit
import contextlib
import json
import os
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Annotated

import msgspec

from jitclient.core.digests import digest
from jitclient.errors import SettingsError

_MOST = 20_000
_MOST_OPERATIONS = 250
_MOST_CASES = 20


class Learnt(msgspec.Struct):
    """What is in the file. The names of modules, the recipes of operations as hexadecimal digits; by case, the modules
    and operations that are unfit, and why; and the hash seed.
    """

    modules: list[str] = []
    operations: list[Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{2})+$")]] = []
    unfit: dict[str, dict[str, str]] = {}
    seed: Annotated[int, msgspec.Meta(ge=0, lt=2**32)] = 0


_known: set[str] = set()
"""What was in the file when it was last read, in this process or before it was forked."""


def modules(first: Collection[str] = ()) -> list[str]:
    """Their names, in the order in which their imports ended, but a package before what is in it: so its import imports
    others in its own order, and what it does is found in itself.

    Args:
        first: packages that come before all others, wherever else they are imported.
    """
    found = _read().modules
    _known.update(found)
    names = dict.fromkeys(found)
    names = dict.fromkeys(above for name in names for above in _with_packages(name) if above in names)
    return sorted(names, key=lambda name: name.partition(".")[0] not in first)


def operations() -> list[bytes]:
    """The recipes of operations, those of the last runs first."""
    found = _read().operations
    _known.update(found)
    return [bytes.fromhex(text) for text in reversed(found)]


def _with_packages(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts) + 1)]


def unfit(case: str) -> dict[str, str]:
    """The modules that a helper must not import in a case, and why."""
    return _read().unfit.get(case, {})


def note_at_the_end() -> None:
    """When this process ends, add what it has imported and traced."""
    pid = os.getpid()
    atexit.register(lambda: _note() if os.getpid() == pid else None)


def note_unfit(case: str, found: dict[str, str]) -> None:
    """Add modules that a helper must not import in a case, which is that from before it tried to.

    Raises:
        OSError: they cannot be noted.
    """
    content = _read()
    others = [one for one in content.unfit.items() if one[0] != case][-_MOST_CASES:]
    content.unfit = dict([*others, (case, {**content.unfit.get(case, {}), **found})])
    _write(content)


def case_of(helper: str) -> str:
    """A name for a helper with the packages that there are now: in another one, or another version, others are unfit.

    Args:
        helper: what selects the helper.
    """
    stamps = [(entry, os.stat(entry).st_mtime_ns) for entry in sys.path if os.path.exists(entry)]
    return digest(repr((helper, stamps)).encode(errors="surrogateescape"), 6).hex()


def path() -> Path:
    """The file of it.

    Raises:
        OSError, SettingsError: there is no folder for it.
    """
    from jitserver.store import folder

    return folder.part() / "imports.json"


def version() -> int:
    """A number that changes when anything was added."""
    try:
        return path().stat().st_mtime_ns
    except OSError:
        return 0


def hash_seed() -> int:
    """The seed of this environment's helpers: with a common one, the order of sets is the same in all their runs."""
    content = _read()
    if not content.seed:
        content.seed = int.from_bytes(os.urandom(4), "little") or 1
        with contextlib.suppress(OSError, SettingsError):
            _write(content)
    return content.seed


def _note() -> None:
    with contextlib.suppress(Exception):  # nothing that the program's user would care about
        if _new_modules() or _new_operations():
            content = _read()  # other runs may have added some
            _known.update(content.modules, content.operations)
            content.modules = [*content.modules, *_new_modules()][:_MOST]
            content.operations = [*content.operations, *_new_operations()][-_MOST_OPERATIONS:]
            _write(content)


def _new_modules() -> list[str]:
    from jitclient.capture.user_code.installed import OURS, package_of

    new = [name for name in list(sys.modules) if name not in _known]
    packages = {
        top
        for top in {name.partition(".")[0] for name in new}
        if (top in OURS and top != __package__.partition(".")[0]) or package_of(top) is not None
    }
    return [name for name in new if name.partition(".")[0] in packages]


def _new_operations() -> list[str]:
    reuse = sys.modules.get("jitclient.jaxside.operations.reuse")
    recipes = [recipe.hex() for recipe in list(reuse.noted)] if reuse else []
    return [recipe for recipe in recipes if recipe not in _known]


def _read() -> Learnt:
    try:
        return msgspec.convert(json.loads(path().read_bytes()), Learnt)
    except (OSError, ValueError, RecursionError):  # there is none, or it is damaged
        return Learnt()


def _write(content: Learnt) -> None:
    file = path()
    fresh = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        fresh.write_text(json.dumps(msgspec.structs.asdict(content)))
        fresh.replace(file)
    except OSError:  # the disk is full
        fresh.unlink(missing_ok=True)
        raise
