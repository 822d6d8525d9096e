"""Fast exit of a run: modules of installed packages that its helper imported are not cleared.

Python clears each module at its exit, which for jax takes longer than many runs. The system frees the memory with the
process, and objects of the user's own modules are finalized as usual. Finalizers may print, but a module that is not
cleared may keep standard output from being closed and flushed, so standard output becomes line-buffered.
"""

import atexit
import contextlib
import ctypes
import sys

from jitclient.capture.user_code.installed import OWN_PACKAGES, package_of

_exempt: set[str] = set()


def register() -> None:
    """Register first so that it runs last: other exit handlers still find their modules."""
    atexit.register(_keep_exempt_modules)


def exempt_loaded_modules() -> None:
    """Mark the modules of installed packages that are loaded now as not to be cleared."""
    tops = {name.partition(".")[0] for name in sys.modules}
    packages = {top for top in tops if top in OWN_PACKAGES or package_of(top) is not None}
    _exempt.update(name for name in sys.modules if name.partition(".")[0] in packages)


def keep(modules: object) -> None:
    """Keep modules until the process has ended."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(modules))


def _keep_exempt_modules() -> None:
    keep([sys.modules.pop(name) for name in _exempt if name in sys.modules])
    # Standard output is missing, unusable, or closed.
    with contextlib.suppress(AttributeError, OSError, ValueError):
        sys.__stdout__.reconfigure(line_buffering=True)  # type: ignore[union-attr]
