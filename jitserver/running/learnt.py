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
from typing import Any

from jitclient.digests import digest

_MOST = 20_000
_MOST_OPERATIONS = 250
_MOST_CASES = 20

_known: set[str] = set()
"""What was in the file when it was last read, in this process or before it was forked."""


def modules(first: Collection[str] = ()) -> list[str]:
    """Their names, in the order in which their imports ended, but a package before what is in it: so its import imports
    others in its own order, and what it does is found in itself.

    Args:
        first: packages that come before all others, wherever else they are imported.
    """
    names = dict.fromkeys(_names("modules"))
    names = dict.fromkeys(above for name in names for above in _with_packages(name) if above in names)
    return sorted(names, key=lambda name: name.partition(".")[0] not in first)


def operations() -> list[bytes]:
    """The recipes of operations, those of the last runs first."""
    return [bytes.fromhex(text) for text in reversed(_names("operations"))]


def _names(kind: str) -> list[str]:
    found = [name for name in _read().get(kind, []) if isinstance(name, str)]
    _known.update(found)
    return found


def _with_packages(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts) + 1)]


def unfit(case: str) -> dict[str, str]:
    """The modules that a helper must not import in a case, and why."""
    return dict(_read().get("unfit", {}).get(case, {}))


def note_at_the_end() -> None:
    """When this process ends, add what it has imported and traced."""
    pid = os.getpid()
    atexit.register(lambda: _note() if os.getpid() == pid else None)


def note_unfit(case: str, found: dict[str, str]) -> None:
    """Add modules that a helper must not import in a case, which is that from before it tried to."""
    with contextlib.suppress(OSError):
        content = _read()
        known = content.get("unfit", {})
        others = [one for one in known.items() if one[0] != case][-_MOST_CASES:]
        _write({**content, "unfit": dict([*others, (case, {**known.get(case, {}), **found})])})


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
        if _new_modules() or _new_operations():
            modules, operations = _names("modules"), _names("operations")  # other runs may have added some
            modules, operations = modules + _new_modules(), operations + _new_operations()
            _write({**_read(), "modules": modules[:_MOST], "operations": operations[-_MOST_OPERATIONS:]})


def _new_modules() -> list[str]:
    from jitclient.codec.user_code.installed import OURS, package_of

    new = [name for name in list(sys.modules) if name not in _known]
    packages = {
        top
        for top in {name.partition(".")[0] for name in new}
        if (top in OURS and top != __package__.partition(".")[0]) or package_of(top) is not None
    }
    return [name for name in new if name.partition(".")[0] in packages]


def _new_operations() -> list[str]:
    reuse = sys.modules.get("jitclient.local_jax.operations.reuse")
    recipes = [recipe.hex() for recipe in list(reuse.noted)] if reuse else []
    return [recipe for recipe in recipes if recipe not in _known]


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
