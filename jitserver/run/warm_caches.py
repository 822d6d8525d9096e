"""Caches of look-ups in all modules, filled before a run is forked: in a forked process, the look-ups are slow."""

import contextlib
import sys

from jitclient.api.switch import modules_of_the_program
from jitclient.capture.ambient.patches import SEARCHED_PACKAGES, find_patches
from jitclient.capture.user_code.installed import is_user_module
from jitclient.capture.user_code.names import constant_home


def fill() -> None:
    """Fill the caches for the modules that are loaded now."""
    # A run that needs a look-up gets the same error.
    with contextlib.suppress(Exception):
        for name in list(sys.modules):
            is_user_module(name)
        constant_home(object())
        for package in SEARCHED_PACKAGES:
            find_patches(package)
        modules_of_the_program()
