"""What a run looks up in all modules, before it is forked: to look at each takes long in a forked process."""

import contextlib
import sys

from jitclient.codec.ambient.patches import look_through
from jitclient.codec.user_code.installed import is_user_module, package_of
from jitclient.codec.user_code.names import constant_home
from jitclient.switch import modules_of_the_program


def take() -> None:
    """Look through the packages that are loaded now."""
    with contextlib.suppress(Exception):  # a run that needs it meets it again
        for name in list(sys.modules):
            is_user_module(name)
        constant_home(object())
        for top in {name.partition(".")[0] for name in list(sys.modules)}:
            package = package_of(top)
            if package is not None:
                look_through(package)
        modules_of_the_program()
