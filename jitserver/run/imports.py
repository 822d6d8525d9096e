"""Imports of a helper: the modules that earlier runs imported, as far as an audit has found them fit.

The operations of JAX that earlier runs traced are prepared here, too.
"""

import contextlib
import fcntl
import gc
import importlib
import os
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from jitclient.api.switch import modules_of_the_program
from jitclient.capture.ambient.patches import SEARCHED_PACKAGES, find_patches
from jitclient.capture.user_code.installed import is_user_module
from jitclient.capture.user_code.names import constant_home
from jitclient.core.file_stamp import FileStamp
from jitclient.errors import SettingsError
from jitclient.jaxside import internals
from jitclient.jaxside.operations import preparation
from jitserver.run import audit, child, fast_exit, history, random_state, verdict
from jitserver.run.additions import put_filters
from jitserver.run.preloaded import Preloaded


class Imports:
    """Imports of this process, a helper.

    Attributes:
        preloaded: the modules, hidden between imports.
        total: how many modules were imported, and the seconds that this took.
        operations: recipes of the operations that are still to be prepared.
        generators: random generators of numpy that the imports have made.
        version: the version of the history at the last update.
        need_audit: whether runs have imported modules of which no verdict says anything.
    """

    def __init__(self, helper: str, terminal: bool) -> None:
        """Import nothing yet.

        Args:
            helper: the key that selects the helper.
            terminal: whether the imports see terminals.
        """
        self.preloaded = Preloaded(terminal)
        self.total = 0, 0.0
        self.operations: list[bytes] = []
        self.need_audit = False
        self._helper = helper
        self._terminal = terminal
        self.version: FileStamp = None
        self._imported: list[str] = []
        self.generators: list[Any] = []

    def differ(self, environment: Mapping[str, str], cwd: str) -> str:
        """Return why a run with these variables, in this directory, cannot use the imports; empty if it can."""
        path = self.preloaded.verdict.finds_other_files(cwd)
        if path:
            return f"imports read {path} in the working directory"
        name = self.preloaded.verdict.differs(environment)
        if name:
            return f"environment variable {name} differs from its value when the helper imported modules that read it"
        return ""

    def update(self) -> bool:
        """Import what the history lists and the verdict finds fit.

        Returns:
            Whether this process can go on. If not, the files are no longer those that it has imported.
        """
        self.version = history.version()
        names = audit.wanted()
        found = verdict.read(self._helper)
        self.need_audit = found is None or not {*names} <= {*found.fit, *found.unfit}
        if found is None or found.fit[: len(self._imported)] != self._imported:
            return not self._imported
        new = found.fit[len(self._imported) :]
        before, start = {*sys.modules}, time.perf_counter()
        self.preloaded.verdict = found
        with self.preloaded.visible():
            with self.preloaded.hooks.kept(), _on_terminal() if self._terminal else contextlib.nullcontext():
                failed = self._import(new)
            self.preloaded.modules |= sys.modules.keys() - before
            if failed:
                found.fit.remove(failed)
                found.unfit[failed] = f"{failed} cannot be imported in a helper"
                self._write(found)
            if failed or found.changed():
                return False
            modules, seconds = self.total
            self.total = modules + len(sys.modules) - len(before), seconds + time.perf_counter() - start
            if "jax" in sys.modules:
                internals.find_no_plugins()
                importlib.import_module("jitclient.jaxside.compilation_cache")  # each run needs it
                new_operations = [one for one in history.operations() if one not in preparation.prepared]
                self.operations = [one for one in new_operations if one.hex() not in found.unfit]
            fast_exit.exempt_loaded_modules()
            fill_caches()
            self.generators += random_state.numpy_generators()  # all others are frozen
        _freeze()
        return True

    def prepare_next(self) -> bool:
        """Prepare one operation. Commands that arrive in the meantime wait for it.

        Returns:
            Whether this process can go on, as in `update`.
        """
        recipe = self.operations.pop(0)
        with self.preloaded.visible(), warnings.catch_warnings():
            warnings.simplefilter("error")
            preparation.prepare(recipe)
        if internals.has_backend() or threading.active_count() > 1:
            found = self.preloaded.verdict
            found.unfit[recipe.hex()] = "it starts a backend of JAX or a thread"
            self._write(found)
            return False
        if not self.operations:
            _freeze()
        return True

    def _write(self, found: verdict.Verdict) -> None:
        # On a full disk, the next helper finds the same.
        with contextlib.suppress(OSError, SettingsError):
            verdict.write(self._helper, found)

    def _import(self, names: list[str]) -> str:
        """Import modules; return the one whose import fails, or empty: none of them has failed in the audit."""
        variables, filters = dict(os.environ), list(warnings.filters)
        for name in names:
            if name not in sys.modules:
                try:
                    importlib.import_module(name)
                except BaseException:
                    return name
                # The next import finds variables, filters and finders as if it was the first.
                if os.environ != variables:
                    os.environ.clear()
                    os.environ.update(variables)
                put_filters(filters)
                self.preloaded.finders.note()
                child.forget_temporary_directory()
            self._imported.append(name)
        return ""


@contextlib.contextmanager
def _on_terminal() -> Iterator[None]:
    """Let the standard streams be a terminal within a block; nothing is printed there."""
    saved = [(number, fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 3)) for number in range(3)]
    ends = os.openpty()
    for number, _ in saved:
        os.dup2(ends[1], number)
    try:
        yield
    finally:
        for number, copy in saved:
            os.dup2(copy, number)
            os.close(copy)
        for end in ends:
            os.close(end)


def _freeze() -> None:
    """Keep the objects that there are now out of later collections of garbage, which would copy forked memory."""
    gc.collect()
    gc.freeze()


def fill_caches() -> None:
    """Fill the caches of look-ups in all modules that are loaded now: in a forked process, the look-ups are slow."""
    # A run that needs a look-up gets the same error.
    with contextlib.suppress(Exception):
        for name in list(sys.modules):
            is_user_module(name)
        constant_home(object())
        for package in SEARCHED_PACKAGES:
            find_patches(package)
        modules_of_the_program()
