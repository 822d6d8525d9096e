"""Client package: JAX functions that stay compiled between runs, on a daemon.

Importing this module is cheap: every name except the errors is loaded on first use (PEP 562).
"""

import functools
import importlib
import sys
from typing import TYPE_CHECKING, Any

from jitclient import errors
from jitclient.capture.ambient import contents
from jitclient.core import clock as clock  # before the program replaces it
from jitclient.core import first_use
from jitclient.errors import AddressTaken as AddressTaken
from jitclient.errors import AmbientInput as AmbientInput
from jitclient.errors import ArrayBudgetExceeded as ArrayBudgetExceeded
from jitclient.errors import ArrayLost as ArrayLost
from jitclient.errors import CaptureError as CaptureError
from jitclient.errors import CrashesDaemon as CrashesDaemon
from jitclient.errors import DaemonDraining as DaemonDraining
from jitclient.errors import DaemonError as DaemonError
from jitclient.errors import DaemonLost as DaemonLost
from jitclient.errors import DaemonUnavailable as DaemonUnavailable
from jitclient.errors import HostUnreachable as HostUnreachable
from jitclient.errors import Incompatible as Incompatible
from jitclient.errors import JitserverError as JitserverError
from jitclient.errors import ProgramLost as ProgramLost
from jitclient.errors import ProgramsDiffer as ProgramsDiffer
from jitclient.errors import ProtocolError as ProtocolError
from jitclient.errors import RemoteError as RemoteError
from jitclient.errors import SessionBusy as SessionBusy
from jitclient.errors import SettingsError as SettingsError
from jitclient.errors import WorkerLost as WorkerLost
from jitclient.errors import WrongUser as WrongUser
from jitclient.errors import loading
from jitclient.jaxside import client_device, internals, interop
from jitclient.version import __version__ as __version__

if TYPE_CHECKING:
    from jitclient import eqx as eqx
    from jitclient.api.devices import devices as devices
    from jitclient.api.explanation import Explanation as Explanation
    from jitclient.api.explanation import explain as explain
    from jitclient.api.keeping import keep as keep
    from jitclient.api.keeping import kept as kept
    from jitclient.api.pool import Pool as Pool
    from jitclient.api.pool import pool as pool
    from jitclient.api.pool_setup import dask_plugin as dask_plugin
    from jitclient.api.pool_setup import worker_setup as worker_setup
    from jitclient.api.switch import install as install
    from jitclient.api.switch import uninstall as uninstall
    from jitclient.api.transfer import block_until_ready as block_until_ready
    from jitclient.api.transfer import device_get as device_get
    from jitclient.api.transfer import device_put as device_put
    from jitclient.arrays.array import Array as Array
    from jitclient.calls.decorator import function_key as function_key
    from jitclient.calls.decorator import jit as jit
    from jitclient.session.process import connect as connect

_HOMES = {
    "Array": "arrays.array",
    "Explanation": "api.explanation",
    "Pool": "api.pool",
    "block_until_ready": "api.transfer",
    "connect": "session.process",
    "dask_plugin": "api.pool_setup",
    "device_get": "api.transfer",
    "device_put": "api.transfer",
    "devices": "api.devices",
    "explain": "api.explanation",
    "function_key": "calls.decorator",
    "install": "api.switch",
    "jit": "calls.decorator",
    "keep": "api.keeping",
    "kept": "api.keeping",
    "pool": "api.pool",
    "uninstall": "api.switch",
    "worker_setup": "api.pool_setup",
}

_FOR_LIBRARIES = {"eqx": "eqx", "nnx": "nnx"}
"""Submodules that need an optional library; `__all__` omits them, so `import *` does not load that library."""

_ERRORS = [name for name, value in vars(errors).items() if name in globals() and isinstance(value, type)]

__all__ = sorted([*_HOMES, *_ERRORS])  # noqa: PLE0605


# Hidden from type checkers, which otherwise accept any name of a module with `__getattr__`.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        # Again, as the import may have been another's, who deferred it.
        client_device.pin()
        if name in _FOR_LIBRARIES:
            return importlib.import_module(f"{__name__}.{_FOR_LIBRARIES[name]}")
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        with loading():
            value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = value
        return value


# Before the program's first use of jax, which would allocate the accelerator's memory.
client_device.pin()

# Before the program changes jax, unless it has imported jax already.
interop.when_loaded(functools.partial(contents.contents_of("jax").add_loaded, are_known="jax" not in sys.modules))

# Before the program binds the function's name.
interop.when_loaded(internals.forward_eval_shape)


def _begin_report() -> None:
    from jitclient.api import program_end

    program_end.begin_by_environment()


first_use.when_used(_begin_report)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_FOR_LIBRARIES})
