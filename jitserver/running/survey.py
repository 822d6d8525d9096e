"""What captures look up in installed packages, before a run is forked: its first capture need not look through all."""

import contextlib
import sys

from jitclient.codec.ambient.patches import look_through
from jitclient.codec.user_code.installed import is_user_module, package_of
from jitclient.codec.user_code.names import bare_objects


def take() -> None:
    """Look through the packages that are loaded now."""
    with contextlib.suppress(Exception):  # a run that needs it meets it again
        for name in list(sys.modules):
            is_user_module(name)
        bare_objects()
        for top in {name.partition(".")[0] for name in list(sys.modules)}:
            package = package_of(top)
            if package is not None:
                look_through(package)
