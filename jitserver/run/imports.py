"""Imports of a helper: the modules that earlier runs imported, but for those whose imports have effects.

The operations of JAX that earlier runs traced are prepared here, too.
"""

import contextlib
import gc
import importlib
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from jitclient.api.switch import modules_of_the_program
from jitclient.capture.ambient.patches import SEARCHED_PACKAGES, find_patches
from jitclient.capture.user_code.installed import is_user_module
from jitclient.capture.user_code.names import constant_home
from jitclient.core.digests import digest
from jitclient.core.file_stamp import FileStamp
from jitclient.jaxside import internals
from jitclient.jaxside.operations import preparation
from jitserver.run import child, fast_exit, history, process_state
from jitserver.run.additions import AuditHooks, Filters, Finders
from jitserver.run.effects import PACKAGES_WITH_STATE, Effects, Registrations, redirected_output
from jitserver.run.environment_log import EnvironmentLog
from jitserver.run.import_audit import ImportAudit, digest_of_inputs, stamps_of
from jitserver.run.import_graph import ImportGraph
from jitserver.run.loggers import Loggers
from jitserver.run.preloaded import Preloaded
from jitserver.run.random_state import Seeding

_MAX_UNFIT_PACKAGES = 50
_MAX_UNFIT_IN_PACKAGE = 10
_IMPORTED_BY = " is imported by "
"""Part of the reason why a module is unfit that another, which changes state, imports: it may have seen that state."""
_ALWAYS = (
    "numpy",
    "jitclient.calls.decorator",
    "jitclient.api.switch",
    "jitclient.session.session",
    "jitclient.calls.general_path",
)


class Imports:
    """Imports of this process, a helper.

    Attributes:
        preloaded: the modules, hidden between imports.
        audit: which files the imports have read.
        seeding: the random generators that the imports have made.
        total: how many modules were imported, and the seconds that this took.
        operations: recipes of the operations that are still to be prepared.
    """

    def __init__(self, helper: str, before_each: Callable[[], None], terminal: bool) -> None:
        """Import nothing yet.

        Args:
            helper: the key that selects the helper.
            before_each: is called before each import.
            terminal: whether the imports see terminals.
        """
        self.audit = ImportAudit(terminal)
        self.seeding = Seeding()
        self._graph = ImportGraph(process_state.note_imports)
        self._environment = EnvironmentLog()
        self._loggers = Loggers()
        self._filters = Filters()
        self._audit_hooks = AuditHooks()
        self._registrations = Registrations()
        self._finders = Finders()
        self.preloaded = Preloaded(
            self._graph,
            self.audit,
            self._environment,
            self._loggers,
            self._filters,
            self._audit_hooks,
            self._finders,
        )
        self.total = 0, 0.0
        self.operations: list[bytes] = []
        self._helper = helper
        self._before_each = before_each
        self._case = ""
        self._version: FileStamp = None
        self._imported: list[str] = []
        self._stamps: dict[str, tuple[int, ...] | None] = {}  # of the modules that these imports loaded
        self._read: tuple[list[str], tuple[set[str], set[str], set[str]]] = [], (set(), set(), set())
        self._fit: history.Imported | None = None  # to be noted
        self._looked = False  # whether effects of the last of them were looked for

    def are_outdated(self) -> bool:
        """Return whether the history has changed since the last imports."""
        return history.version() != self._version

    def differ(self, environment: Mapping[str, str], cwd: str) -> str:
        """Return why a run with these variables, in this directory, cannot use the imports; empty if it can."""
        path = self.audit.finds_other_files(cwd)
        if path:
            return f"imports read {path} in the working directory"
        name = self._environment.differs(environment)
        if name:
            return f"environment variable {name} differs from its value when the helper imported modules that read it"
        return ""

    def update(self) -> bool:
        """Import what the history lists.

        Returns:
            Whether this process can go on. If not, an import had an effect that only a run may have: its module is
            noted as unfit, and another process must start without it.
        """
        self._version = history.version()
        self._case = history.case_of(self._helper)
        unfit = history.unfit(self._case)
        with self.preloaded.visible(), self._graph, self._loggers:
            return self._update(unfit)

    def _update(self, unfit: Mapping[str, str]) -> bool:
        names = [*_ALWAYS, *history.modules(PACKAGES_WITH_STATE)]
        before, start = len(sys.modules), time.perf_counter()
        earlier = history.fit(self._case)
        notes = (self.audit, self._environment, self._filters, self._audit_hooks, self._registrations, self.seeding)
        with contextlib.ExitStack() as contexts, redirected_output():
            for each in notes:
                contexts.enter_context(each)
            found = self._import(names, unfit, earlier)
            if found is not None and not found and "jax" in sys.modules:
                internals.find_no_plugins()
        # Only now, because the imports would seem to have read the file.
        if self._fit is not None:
            history.note_fit(self._case, self._fit)
        if found:
            history.note_unfit(self._case, found)
        if found is None or found:
            return False
        modules, seconds = self.total
        self.total = modules + len(sys.modules) - before, seconds + time.perf_counter() - start
        fast_exit.exempt_loaded_modules()
        fill_caches()
        if "jax" in sys.modules:
            importlib.import_module("jitclient.jaxside.compilation_cache")  # each run needs it
            recipes = {one.hex(): one for one in history.operations()}
            known = [recipes[name] for name in _fit(reversed(recipes), unfit)]
            self.operations = [one for one in reversed(known) if one not in preparation.prepared]
        _freeze()
        return True

    def prepare_next(self) -> bool:
        """Prepare one operation. Commands that arrive in the meantime wait for it.

        Returns:
            Whether this process can go on, as in `update`.
        """
        recipe = self.operations.pop(0)
        with self.preloaded.visible(), self._graph, self._loggers, redirected_output(), warnings.catch_warnings():
            warnings.simplefilter("error")
            effects = Effects(self.audit, self._environment, self.seeding, self._registrations)
            preparation.prepare(recipe)
            problem = effects.of(history.AN_OPERATION)
        if problem:
            history.note_unfit(self._case, {recipe.hex(): problem})
            return False
        if not self.operations:
            _freeze()
        return True

    def _import(
        self, names: Collection[str], unfit: Mapping[str, str], known: history.Imported
    ) -> dict[str, str] | None:
        """Import modules until one has effects; return the modules that are unfit therefore, with the reasons.

        As long as an earlier helper has found that the same imports, in the same order and of the same files, have no
        effects, these are not looked for. None if the files are others, so that another helper must look.
        """
        effects: Effects | None = None
        self._fit = None
        for name in _fit(names, unfit):
            self._before_each()
            if name in sys.modules:
                continue
            if effects is None and known.names[len(self._imported) :][:1] != [name]:
                if not self._are_of(known):
                    return None
                effects = Effects(self.audit, self._environment, self.seeding, self._registrations)
            loaded = set(sys.modules)
            try:
                importlib.import_module(name)
            except BaseException as error:
                problem = f"importing {name} raises {type(error).__name__}"
            else:
                # The next import finds variables and finders, and looks for other things, as if it was the first.
                self._environment.revert()
                self._finders.note()
                child.forget_temporary_directory()
                problem = "" if effects is None else effects.of(name)
                if not self._filters.revert():
                    problem = problem or f"{name} changes warning filters"
            found = {name: problem} if problem else {}
            if effects is not None and effects.changed_state:
                new = sys.modules.keys() - loaded - {name}
                # A module that was unfit before keeps the reason that says what it does itself.
                found |= {one: f"{one}{_IMPORTED_BY}{name}" for one in names if one in new and one not in unfit}
            if found:
                self._note_fit(effects)
                return found
            self._imported.append(name)
            self._stamps |= stamps_of(sys.modules.keys() - loaded)
            self._read = self._environment.read(), self.audit.inputs()
        self._note_fit(effects)
        return {} if effects is not None or self._are_of(known) else None

    def _are_of(self, known: history.Imported) -> bool:
        """Return whether all imports so far are of the files that an earlier helper imported; if not, forget these."""
        if not self._imported or self._looked or known.files == self._files():
            return True
        self._fit = history.Imported()
        return False

    def _files(self) -> str:
        variables, paths = self._read
        found = sorted(dict(self._stamps).items()), variables, digest_of_inputs(*paths)
        return digest(repr(found).encode(errors="surrogateescape"), 8).hex()

    def _note_fit(self, effects: Effects | None) -> None:
        if effects is not None:
            self._looked = True
            self._fit = history.Imported(self._imported, self._files())


def _fit(names: Iterable[str], unfit: Mapping[str, str]) -> Iterator[str]:
    """Yield the fit ones of modules, or of operations, in the order in which they entered the history.

    A helper starts again for each that it finds unfit. Therefore a package with many unfit modules is left out, and so
    is all that comes after many packages with such modules.
    """
    counts = Counter(_package(name) for name, reason in unfit.items() if _IMPORTED_BY not in reason)
    found = set()
    for name in names:
        found |= {_package(name)} & counts.keys()
        if len(found) > _MAX_UNFIT_PACKAGES:
            return
        if counts[_package(name)] <= _MAX_UNFIT_IN_PACKAGE and unfit.keys().isdisjoint(history.with_packages(name)):
            yield name


def _package(name: str) -> str:
    return name.partition(".")[0]


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
