"""What a run looks up in all modules, before it is forked: to look at each takes long in a forked process."""

import contextlib
import sys

from jitclient.api.switch import modules_of_the_program
from jitclient.capture.ambient.patches import LOOKED_THROUGH, look_through
from jitclient.capture.user_code.installed import is_user_module
from jitclient.capture.user_code.names import constant_home


def take() -> None:
    """Look through what is loaded now."""
    with contextlib.suppress(Exception):  # a run that needs it meets it again
        for name in list(sys.modules):
            is_user_module(name)
        constant_home(object())
        for package in LOOKED_THROUGH:
            look_through(package)
        modules_of_the_program()
