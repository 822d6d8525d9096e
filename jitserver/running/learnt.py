"""Which modules of installed packages the runs of this environment have imported, for the next helper to import first.

Never the user's own modules: those may change from run to run.
"""

import atexit
import contextlib
import json
import os
import sys
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from jitclient.digests import digest

_MOST = 20_000
_MOST_CASES = 20


def modules(first: Collection[str] = ()) -> list[str]:
    """Their names, in the order in which their imports ended, but a package before what is in it: so its import imports
    others in its own order, and what it does is found in itself.

    Args:
        first: packages that come before all others, wherever else they are imported.
    """
    names = dict.fromkeys(name for name in _read().get("modules", []) if isinstance(name, str))
    names = dict.fromkeys(above for name in names for above in _with_packages(name) if above in names)
    return sorted(names, key=lambda name: name.partition(".")[0] not in first)


def _with_packages(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts) + 1)]


def unfit(helper: str) -> dict[str, str]:
    """The modules that a helper must not import, and why.

    Args:
        helper: what selects the helper; what is unfit in one need not be so in another.
    """
    return dict(_read().get("unfit", {}).get(_case(helper), {}))


def note_at_the_end() -> None:
    """When this process ends, add what it has imported."""
    pid = os.getpid()
    atexit.register(lambda: _note() if os.getpid() == pid else None)


def note_unfit(helper: str, found: dict[str, str]) -> None:
    """Add modules that a helper must not import."""
    with contextlib.suppress(OSError):
        case, content = _case(helper), _read()
        known = content.get("unfit", {})
        others = [one for one in known.items() if one[0] != case][-_MOST_CASES:]
        _write({**content, "unfit": dict([*others, (case, {**known.get(case, {}), **found})])})


def _case(helper: str) -> str:
    """A name for a helper with the packages that there are now: another version may be fit."""
    stamps = [(entry, os.stat(entry).st_mtime_ns) for entry in sys.path if os.path.exists(entry)]
    return digest(repr((helper, stamps)).encode(errors="surrogateescape"), 6).hex()


def path() -> Path:
    """The file of it.

    Raises:
        OSError, SettingsError: there is no folder for it.
    """
    from jitserver.cache import folder

    return folder.part() / "imports.json"


def version() -> int:
    """A number that changes when anything was added."""
    try:
        return path().stat().st_mtime_ns
    except OSError:
        return 0


def hash_seed() -> int:
    """The seed of this environment's helpers: with a common one, the order of sets is the same in all their runs."""
    seed = _read().get("seed")
    if not isinstance(seed, int) or not 0 < seed < 2**32:
        seed = int.from_bytes(os.urandom(4), "little") or 1
        with contextlib.suppress(OSError):
            _write({**_read(), "seed": seed})
    return seed


def _note() -> None:
    with contextlib.suppress(Exception):  # nothing that the program's user would care about
        known = modules()
        new = _new(known)
        if new:
            _write({**_read(), "modules": [*known, *new][:_MOST]})


def _new(known: Iterable[str]) -> list[str]:
    from jitclient.codec.user_code.installed import OURS, package_of

    seen = set(known)
    of_packages: dict[str, bool] = {}
    for name in list(sys.modules):
        top = name.partition(".")[0]
        if top not in of_packages:
            of_packages[top] = (top in OURS and top != __package__.partition(".")[0]) or package_of(top) is not None
    return [name for name in list(sys.modules) if name not in seen and of_packages[name.partition(".")[0]]]


def _read() -> dict[str, Any]:
    try:
        found = json.loads(path().read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _write(content: dict[str, Any]) -> None:
    file = path()
    fresh = file.with_name(f".{file.name}.{os.getpid()}")
    fresh.write_text(json.dumps(content))
    fresh.replace(file)
