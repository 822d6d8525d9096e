"""The end of a run: modules of installed packages that its helper has imported are not taken apart.

Python clears each module when it ends, which takes longer for jax than many a run. The memory goes with the process;
what the user's own modules hold is ended as always. What that prints must not wait for the end of standard output: a
module may keep it.
"""

import atexit
import contextlib
import ctypes
import sys

from jitclient.capture.user_code.installed import OURS, package_of

_spared: set[str] = set()


def register() -> None:
    """Before all others, so that it is the last: what happens at the end before still finds its modules."""
    atexit.register(_spare)


def spare_what_is_loaded() -> None:
    """The modules are those that are loaded now."""
    tops = {name.partition(".")[0] for name in sys.modules}
    packages = {top for top in tops if top in OURS or package_of(top) is not None}
    _spared.update(name for name in sys.modules if name.partition(".")[0] in packages)


def _spare() -> None:
    modules = [sys.modules.pop(name) for name in _spared if name in sys.modules]
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(modules))
    with contextlib.suppress(AttributeError, OSError, ValueError):  # there is none, it is of no use, or closed
        sys.__stdout__.reconfigure(line_buffering=True)  # type: ignore[union-attr]
