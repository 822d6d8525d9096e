"""Installed modules, which are captured by name; all other modules are user code.

The location of a module's file decides, not its name: a user's `code.py` hides the one of the standard library.
"""

import contextlib
import functools
import json
import os
import site
import sys
import sysconfig
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

OWN_PACKAGES = frozenset({"jitclient", "jitserver"})
"""Packages that count as installed wherever they are: the handshake has checked that the daemon's version is equal."""

_DIRECTORY_NAMES = ("site-packages", "dist-packages")


def _roots() -> tuple[str, ...]:
    paths = [sysconfig.get_path(k) for k in ("stdlib", "platstdlib", "purelib", "platlib")]
    paths += [*site.getsitepackages(), site.getusersitepackages()]
    return tuple({os.path.realpath(path) + os.sep for path in paths if path})


_ROOTS = _roots()


@functools.cache
def is_user_module(name: object) -> bool:
    """Return whether a module is user code: outside the standard library and all package directories."""
    if not isinstance(name, str) or name in ("", "__main__", "__mp_main__"):
        return True
    if name.partition(".")[0] in OWN_PACKAGES:
        return False
    where = _place_of(name)
    if where is None and "." in name:
        return is_user_module(name.partition(".")[0])
    if where is None:
        return name not in sys.builtin_module_names and name not in sys.stdlib_module_names
    return not is_installed_path(where)


@functools.cache
def package_of(name: str) -> str | None:
    """Return the top-level import name of an installed package outside the standard library, or None."""
    top = name.partition(".")[0]
    where = None if top in OWN_PACKAGES or is_user_module(top) else _place_of(top)
    if where is None or (top in sys.stdlib_module_names and not _in_package_directory(where)):
        return None
    return top


def find_source(name: str) -> ModuleSpec | None:
    """Return the spec of a module without importing the module or its parents; None if it is not found."""
    parent = name.rpartition(".")[0]
    path: list[str] | None = None
    if parent:
        above = find_source(parent)
        if above is None or above.submodule_search_locations is None:
            return None
        path = list(above.submodule_search_locations)
    for finder in sys.meta_path:
        with contextlib.suppress(ImportError, ValueError, AttributeError):
            try:
                spec = finder.find_spec(name, path)
            except KeyError:
                # A namespace package inside another one that is not imported raises this.
                spec = _of_namespace_package(name, path or [])
            if spec is not None:
                return spec
    return None


def _of_namespace_package(name: str, path: list[str]) -> ModuleSpec | None:
    spec = ModuleSpec(name, None, is_package=True)
    directories = [os.path.join(directory, name.rpartition(".")[2]) for directory in path]
    spec.submodule_search_locations = [directory for directory in directories if os.path.isdir(directory)]
    return spec


def _place_of(name: str) -> str | None:
    """Return the file or directory of a module; None if it is built in, made at run time or missing."""
    module: Any = sys.modules.get(name)
    if module is None:
        spec = find_source(name)
        if spec is None:
            return None
        origin = spec.origin if spec.has_location else None
        return origin or next(iter(spec.submodule_search_locations or ()), None)
    file = stored(module, "__file__")
    if isinstance(file, str):
        return file
    try:
        return next((p for p in stored(module, "__path__") or () if isinstance(p, str)), None)
    except TypeError:
        return None


def stored(module: object, name: str) -> Any:
    """Return an attribute that an entry of `sys.modules` has stored, or None, without a call of its code.

    The entry may be any object, such as one that loads a module as soon as it is looked at.
    """
    try:
        return object.__getattribute__(module, "__dict__").get(name)
    except AttributeError:
        return None


def is_installed_path(path: str) -> bool:
    """Return whether a file belongs to Python or to an installed package."""
    real = _real_path(path)
    return real.startswith(_ROOTS) or _in_package_directory(real) or _beside_metadata(real)


def is_data_of_package(path: str) -> bool:
    """Return whether a file of an installed package is neither code nor metadata.

    It may be written after the installation, and read by another package than its own.
    """
    real = _real_path(path)
    is_of_python = real.startswith(_ROOTS) and not _in_package_directory(real)
    return not (is_of_python or real.endswith((".py", ".pyc", ".so")) or ".dist-info" in real or ".egg-info" in real)


def _real_path(path: str) -> str:
    """Return `os.path.realpath(path)`, faster for many files in few directories, as modules are."""
    directory, name = os.path.split(path)
    if not os.path.isabs(path) or name in ("", os.curdir, os.pardir):
        return os.path.realpath(path)
    real = os.path.join(_real_directory(directory), name)
    return os.path.realpath(real) if os.path.islink(real) else real


_real_directory = functools.cache(os.path.realpath)


def _in_package_directory(path: str) -> bool:
    return any(f"{os.sep}{name}{os.sep}" in path for name in _DIRECTORY_NAMES)


def _beside_metadata(path: str) -> bool:
    """Return whether a file lies in an entry of `sys.path` that pip filled (`pip install --target`)."""
    entries = {os.path.realpath(entry) for entry in sys.path if entry}
    return any(path.startswith(e + os.sep) and _holds_metadata(e) for e in entries)


@functools.cache
def _holds_metadata(directory: str) -> bool:
    return any(not _is_editable(found) for found in Path(directory).glob("*.dist-info"))


def _is_editable(metadata: Path) -> bool:
    try:
        about = json.loads((metadata / "direct_url.json").read_text())
        return bool(about["dir_info"]["editable"])
    except (OSError, ValueError, KeyError, TypeError):
        return False


class HidesModules:
    """Base class of finders that have modules which were imported before the program imports them."""

    def __contains__(self, name: object) -> bool:
        """Return whether a module is hidden."""
        raise NotImplementedError


def is_hidden(module: str) -> bool:
    """Return whether this process has imported a module, and the program has not, as under `jitserver run`."""
    hiding = (finder for finder in sys.meta_path if isinstance(finder, HidesModules))
    return module not in sys.modules and any(module in finder for finder in hiding)
