"""Versions that program and workers must share, because pickles depend on them."""

import functools
import platform
import socket
import sys
from collections.abc import Mapping
from importlib import metadata

from jitclient.errors import Incompatible
from jitclient.version import __version__

_PACKAGES = ("cloudpickle", "jax", "jaxlib")


@functools.cache
def installed() -> Mapping[str, str]:
    """Return the versions of this environment: of Python without its last part, jitserver and packages."""
    found = {"Python": ".".join(platform.python_version_tuple()[:2]), "jitserver": __version__}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def check(here: Mapping[str, str], there: Mapping[str, str]) -> None:
    """Compare the versions of the program with those of this worker. A package that one side lacks does not matter.

    Args:
        here: versions of the program.
        there: versions of the worker, which is this process.

    Raises:
        Incompatible: a version differs; the message names host and versions, and the remedy.
    """
    differ = [name for name in here if there.get(name, here[name]) != here[name]]
    if not differ:
        return
    differences = ", ".join(f"{name} is {here[name]} here and {there[name]} there" for name in differ)
    wanted = " ".join(f"{name}=={here[name]}" for name in differ if name != "Python")
    remedy = (
        f"Make an environment with Python {here['Python']} there, and name it in the address"
        if "Python" in differ
        else f"Run `{sys.executable} -m pip install {wanted}` there"
    )
    raise Incompatible(f"pool: {socket.gethostname()} has different versions: {differences}. {remedy}.")
