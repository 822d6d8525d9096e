"""The client's own jax, which computes whatever does not run on the daemon."""

import functools
import sys
from types import FrameType

from jitclient.jaxside import client_device, compilation_cache, compiler, interop


def configure() -> None:
    """Pin this process's jax to its device, and make it keep its compilations, immediately or when it is imported.

    Raises:
        SettingsError: JITSERVER_CLIENT_DEVICE or JITSERVER_CLIENT_CACHE has an invalid value.
    """
    client_device.pin()
    compilation_cache.keep_compilations()


def omit_callers() -> None:
    """Omit the functions on the stack, which start a program, from the source locations in JAX's programs.

    So these locations, and the keys of compilations, are the same whichever command starts the program.
    """
    files: set[str] = set()
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        files.add(frame.f_code.co_filename)
        frame = frame.f_back
    interop.when_loaded(functools.partial(compiler.omit_from_locations, frozenset(files)))
