"""A run finds the modules that its helper has imported as plain `python` would find them, at each moment."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from ...sampled import sampled
from .conftest import SECONDS, install, learn, unfit

SHOWN = """
import sys

# What our own command has loaded.
OWN = {"cloudpickle", "jitclient", "jitserver", "msgspec", "setproctitle", "typing_extensions"}

def show():
    # Native code makes modules that have no spec: those are not hidden.
    found = {name for name, module in sys.modules.items() if getattr(module, "__spec__", None) is not None}
    loaded = {name for name in found if name.partition(".")[0] not in OWN | sys.stdlib_module_names}
    parts = {(name, part) for name in loaded for part in vars(sys.modules[name]) if f"{name}.{part}" in loaded}
    print([loaded, parts])
"""
"""Program that can print which modules of packages are loaded, and which of them are attributes of others."""

LAZY = ("numpy.ma", "numpy.random", "_cyutility")
"""Modules that other packages load by looking at an attribute, or in native code: they appear when they are used."""

REAL = ["numpy", "jax", "optax", "flax", "scipy", "matplotlib", "jax.experimental.pallas", "numpy.random"]


@pytest.mark.slow
def test_modules_appear_when_a_program_imports_them(cold: Any, until: Any) -> None:
    learn(cold, until, *REAL, "pandas")
    for name in REAL:
        script = cold.script(f"{SHOWN}\nimport {name}\nshow()\nimport optax, scipy.linalg\nshow()")
        done, expected = cold.run("--verbose", script), cold.plain(script)
        assert done.stderr == ""
        for ours, theirs in zip(done.stdout.splitlines(), expected.stdout.splitlines(), strict=True):
            (loaded, parts), (loaded_there, parts_there) = eval(ours), eval(theirs)
            assert not {each for each in loaded - loaded_there if not each.startswith("_sysconfigdata")}, name
            assert not {each for each in loaded_there - loaded if not each.startswith(LAZY)}, name
            assert parts <= parts_there, name
            assert not {each for each in parts_there - parts if not ".".join(each).startswith(LAZY)}, name


PACKAGES = {
    "reads": "import os; VALUE = os.environ.get('VARIABLE')",
    "sets": "import os; os.environ['VARIABLE'] = 'set by an import'",
    "uses": "import reads; VALUE = reads.VALUE",
    "sets_and_uses": "import sets, reads; VALUE = reads.VALUE",
    "warns": "import warnings; warnings.warn('deprecated', UserWarning, stacklevel=1); VALUE = 1",
    "logs": "import logging; ours = logging.getLogger('ours'); VALUE = type(ours).__name__",
    "handles": """
        import logging
        logging.getLogger("handles.part").addHandler(logging.NullHandler())
        VALUE = logging.getLogger("handles.part").handlers
    """,
    "quiets": "import logging; logging.getLogger('quieted').setLevel(40)",
    "quieted": "import logging; VALUE = logging.getLogger('quieted').level",
    "holds": "from sys import argv as VALUE",
    "defaults": """
        import sys
        def arguments(argv=sys.argv):
            return argv
        VALUE = 1
    """,
    **{
        f"looks_{place}": f"""
            import sys
            class Finder:
                def find_spec(self, name, path=None, target=None):
                    return None
            sys.meta_path.insert({at}, Finder())
            VALUE = 1
        """
        for place, at in {"first": "0", "last": "len(sys.meta_path)", "before": "-1"}.items()
    },
    "looks_after_it": "import looks_last, looks_first\nVALUE = 1",
    "puts": """
        import sys, types
        part = sys.modules["puts.part"] = types.SimpleNamespace(__spec__=types.__spec__)
        def has_part():
            return part is sys.modules.get("puts.part")
        VALUE = 1
    """,
    "puts_lazy": """
        import sys
        SEEN = []
        class Part:
            def __getattr__(self, name):
                SEEN.append(name)
                raise AttributeError(name)
        sys.modules["puts_lazy.part"] = Part()
        VALUE = 1
    """,
    "finds": "import os; VALUE = os.path.exists('configuration')",
    "optional": "try:\n    import absent\n    VALUE = 1\nexcept ImportError:\n    VALUE = 0",
    "native": "import numpy; VALUE = numpy.float32(1)",
    "filters": """
        import warnings
        warnings.filterwarnings("ignore", message="ours")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("always", type("Own", (Warning,), {}), append=True)
        VALUE = 1
    """,
    "audits": """
        from sys import addaudithook
        SEEN = []
        addaudithook(lambda event, _: event == "ours" and SEEN.append(event))
        VALUE = 1
    """,
    "uses_audits": "import audits; VALUE = audits.VALUE",
    "binds": """
        import functools
        from builtins import open
        from os import environ, getcwd
        from random import seed
        KIND = type(environ)
        def has_kind():
            return KIND is type(environ)
        VALUE = functools.wraps(open)(lambda: None).__qualname__
    """,
    **dict.fromkeys(
        ("stores", "stores_too"),
        """
        import tempfile
        with tempfile.NamedTemporaryFile():
            VALUE = tempfile.gettempdir()
    """,
    ),
    "spawns": "import asyncio, multiprocessing; VALUE = 1",
    "talks": """
        import logging
        logging.getLogger("talking").debug("a message of an import")
        logging.getLogger("talking.aloud").setLevel(20)
        logging.getLogger("talking.aloud").debug("a message that the import itself drops")
        VALUE = 1
    """,
}
"""Installed packages. Each has a value of its import."""

PROGRAMS = {
    "an import sets it": ("import sets, reads", "reads"),
    "an import sets it for what it imports": ("import sets_and_uses", "sets_and_uses"),
    "what an import reads that another import sets": ("import reads, sets, uses", "uses"),
    "in either order": ("import uses, sets_and_uses", "sets_and_uses"),
    "set by code": ("exec(\"import os; os.en\" + \"viron['VARIABLE'] = 'x'\"); import uses", "uses"),
    "set by a module": ("import configures, reads", "reads"),
    "set after the import": ("import reads, configures, uses", "uses"),
    "a module of the user": ("import sys; sys.path.insert(0, 'own'); import uses", "uses"),
    "a module of the user, too late": ("import sys; sys.path.append('own'); import uses", "uses"),
    "put in its place": (
        "import sys, types; sys.modules['reads'] = types; types.VALUE = 5; import uses",
        "uses",
    ),
    "found by the user": ("import finder, uses", "uses"),
    "looked for by the user": ("import looker, uses", "uses"),
    "warnings are errors": ("import warnings; warnings.simplefilter('error'); import uses", "uses"),
    "warnings are ignored": ("import warnings; warnings.simplefilter('ignore'); import uses", "uses"),
    "other loggers": (
        "from logging import *; setLoggerClass(type('Own', (Logger,), {})); import logs",
        "logs",
    ),
    "loggers disabled before": (
        "import logging.config as c; c.dictConfig({'version': 1}); import logs; assert not logs.ours.disabled",
        "logs",
    ),
    "loggers disabled after": (
        "import logging.config as c, logs; c.dictConfig({'version': 1}); assert logs.ours.disabled",
        "logs",
    ),
    "a logger set before": (
        "import logging; logging.getLogger('ours').setLevel(10); import logs; assert logs.ours.level == 10",
        "logs",
    ),
    "a logger with a handler": (
        "import logging as l; l.getLogger('handles.part').addHandler(l.StreamHandler()); import handles",
        "handles",
    ),
    "a level that loggers inherit": (
        "import logging as l; l.getLogger('handles').setLevel(10); import handles; "
        "print(l.getLogger('handles.part').getEffectiveLevel())",
        "handles",
    ),
    "a logger that another package sets": ("import quieted", "quieted"),
    "a logger that an import sets before": ("import quiets, quieted", "quieted"),
    "messages are shown": ("import logging; logging.basicConfig(level=10); import talks", "talks"),
    "messages of one logger are shown": (
        "import logging as l; l.basicConfig(); l.getLogger('talking').setLevel(10); import talks",
        "talks",
    ),
    "messages are not shown": ("import logging; logging.basicConfig(level=20); import talks", "talks"),
    "messages are shown, later": ("import logging, talks; logging.basicConfig(level=10)", "talks"),
    "all messages are disabled": (
        "import logging; logging.basicConfig(level=10); logging.disable(); import talks",
        "talks",
    ),
    "finders": (
        """
        import sys
        def show():
            modules = [getattr(each, "__name__", type(each).__module__) for each in sys.meta_path]
            print([each for each in modules if not each.startswith("jit")])
        show()
        import looks_first
        show()
        import looks_before
        show()
        import looks_last
        show()
        """,
        "looks_last",
    ),
    "finders of what a package imports": (
        "import looks_after_it, sys; print([type(each).__module__ for each in sys.meta_path if 'looks' in repr(each)])",
        "looks_after_it",
    ),
    "a part that is no module": ("import puts; print(puts.has_part(), puts.part.__spec__.name)", "puts"),
    "a part that sees who looks at it": (
        "import sys; print('puts_lazy.part' in sys.modules); import puts_lazy; "
        "print('puts_lazy.part' in sys.modules, puts_lazy.SEEN)",
        "puts_lazy",
    ),
    "the arguments": ("import holds, sys; assert holds.VALUE is sys.argv", "holds"),
    "the arguments as a default": (
        "import defaults, sys; print(type(defaults.arguments()), defaults.arguments() is sys.argv)",
        "defaults",
    ),
    "the class of modules": (
        "import sys, uses; print(type(uses) is type(sys), hasattr(uses, 'argv'), hasattr(sys, '__getattr__'))",
        "uses",
    ),
    "the names of loggers": (
        "import logging; print(sorted(logging.root.manager.loggerDict)); import handles, logs; "
        "print(sorted(logging.root.manager.loggerDict))",
        "handles",
    ),
    "filtered by a package": ("import filters, warnings; warnings.warn('ours'); print(warnings.filters)", "filters"),
    "filtered by another package": ("import uses, warnings; warnings.warn('ours'); print(warnings.filters)", "uses"),
    "an audit hook": (
        "import sys; sys.audit('ours'); import audits; sys.audit('ours'); "
        "print(audits.SEEN, audits.addaudithook is sys.addaudithook)",
        "audits",
    ),
    "an audit hook of another package": (
        "import uses_audits, sys; sys.audit('ours'); print(sys.modules['audits'].SEEN)",
        "uses_audits",
    ),
    "an audit hook of a package that is not imported": (
        "import sys, uses; sys.audit('ours'); import audits; print(audits.SEEN)",
        "uses",
    ),
    "bound by an import": (
        "import binds, os, random; print(binds.open is open, binds.getcwd is os.getcwd, binds.seed == random.seed, "
        "binds.has_kind())",
        "binds",
    ),
    "a directory for temporary files": (
        "import tempfile, uses, configures_tempfile; print(tempfile.gettempdir())",
        "uses",
    ),
    "a directory for temporary files, before an import looks for it": (
        "import configures_tempfile, stores_too",
        "stores_too",
    ),
    "a directory for temporary files, after an import has looked for it": (
        "import stores_too, configures_tempfile, tempfile; print(tempfile.tempdir, tempfile.gettempdir())",
        "stores_too",
    ),
    "times of log records": (
        "import logging, os, uses; record = logging.makeLogRecord({}); "
        "print(record.created - record.relativeCreated / 1000 >= os.stat(__file__).st_mtime)",
        "uses",
    ),
    "objects from spawned processes": (
        """
        import multiprocessing, spawns
        class Own: pass
        if __name__ == "__main__":
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(type(pool.apply(Own)) is Own)
        """,
        "spawns",
    ),
    "traced": ("import sys; sys.settrace(lambda *_: None); import uses", "uses"),
    "within a trace of JAX's": (
        """
        from jitclient.capture.manifest import observed
        with observed():
            def imports():
                import uses
            imports()
        """,
        "uses",
    ),
    "in another directory": ("import os; os.chdir('own'); import finds", "finds"),
    "limits": (
        "import resource as r; r.setrlimit(r.RLIMIT_NOFILE, (99, r.getrlimit(r.RLIMIT_NOFILE)[1])); import native",
        "native",
    ),
    "threads": ("import configures_threads, native", "native"),
    "threads, unseen by Python": ("import puts_threads, native", "native"),
    "imported by name": ("import importlib; importlib.import_module('uses'); import uses", "uses"),
    "imported in a thread": (
        "import threading; t = threading.Thread(target=__import__, args=('uses',)); t.start(); t.join(); import uses",
        "uses",
    ),
    "only looked up": ("import importlib.util; assert importlib.util.find_spec('uses'); import sets, uses", "uses"),
    "reloaded": ("import importlib, reads, configures; importlib.reload(reads)", "reads"),
    "removed": ("import sys, reads, configures; del sys.modules['reads']; import reads", "reads"),
    "an optional one": ("import optional", "optional"),
    "in a directory twice": (
        "import os, sys; sys.path.insert(0, os.environ['PYTHONPATH'].split(os.pathsep)[0]); import uses",
        "uses",
    ),
}
"""Programs that change something, or not, before they import a package; and that package."""

IN_THE_HELPER = {
    "within a trace of JAX's",
    "in either order",
    "what an import reads that another import sets",
    "set after the import",
    "a module of the user, too late",
    "looked for by the user",
    "warnings are ignored",
    "filtered by a package",
    "filtered by another package",
    "an audit hook",
    "an audit hook of another package",
    "an audit hook of a package that is not imported",
    "bound by an import",
    "a directory for temporary files",
    "a directory for temporary files, after an import has looked for it",
    "times of log records",
    "objects from spawned processes",
    "loggers disabled before",
    "loggers disabled after",
    "a logger set before",
    "a level that loggers inherit",
    "a logger that an import sets before",
    "messages are not shown",
    "messages are shown, later",
    "all messages are disabled",
    "a part that is no module",
    "a part that sees who looks at it",
    "the arguments",
    "the arguments as a default",
    "the class of modules",
    "finders",
    "finders of what a package imports",
    "the names of loggers",
    "imported by name",
    "imported in a thread",
    "reloaded",
    "removed",
    "an optional one",
    "in a directory twice",
}
"""Programs that need no fresh process."""

MODULES = {
    "own/reads.py": "VALUE = 'of the user'",
    "own/configuration": "",
    "configures_tempfile.py": "import os; os.environ['TMPDIR'] = os.path.abspath('own')",
    "configures.py": "import os; os.environ['VARIABLE'] = 'x'",
    "puts_threads.py": "import os; os.putenv('OMP_NUM_THREADS', '1')",
    "configures_threads.py": "import os; os.environ['OMP_NUM_THREADS'] = '1'",
    "looker.py": "import sys; sys.meta_path.insert(0, type('Looker', (), {'find_spec': lambda *_: None}))",
    "finder.py": """
        import importlib.machinery, importlib.util, sys
        class Finder:
            def find_spec(name, path, target=None):
                return importlib.util.spec_from_file_location(name, "own/reads.py") if name == "reads" else None
        sys.meta_path.insert(0, Finder)
    """,
}
"""Modules of the user."""


@pytest.fixture(scope="module")
def learnt(warm: Any, until: Any) -> Any:
    """An environment with a helper that has imported packages."""
    site = warm.folder / "lib" / "site-packages"
    site.mkdir(parents=True)
    for name, source in PACKAGES.items():
        install(site, name, source)
    for name, source in MODULES.items():
        warm.script(source, name)
    warm.variables["PYTHONPATH"] = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))
    learn(warm, until, *PACKAGES)
    return warm


@pytest.mark.parametrize("name", sampled(list(PROGRAMS), 3))
def test_imports_are_what_they_are_under_python(name: str, learnt: Any) -> None:
    source, package = PROGRAMS[name]
    source = textwrap.dedent(source)
    script = learnt.script(f"{source}\nprint({package}.VALUE, flush=True)", f"{'_'.join(name.split())}.py")
    done = learnt.run("--verbose", script)
    expected = learnt.plain(script)
    said = [line for line in done.stderr.splitlines(keepends=True) if line.startswith("jitserver: ")]
    assert done.stdout == expected.stdout
    assert done.stderr.replace("".join(said), "") == expected.stderr
    assert bool(said) != (name in IN_THE_HELPER), said
    assert len(said) < 2
    assert all("the program runs in a fresh process: " in line for line in said)


@pytest.mark.slow
def test_a_helper_imports_what_registers_an_audit_hook(learnt: Any) -> None:
    assert {"audits", "uses_audits"}.isdisjoint(unfit(learnt))


@pytest.mark.slow
def test_a_fresh_process_has_the_state_in_which_the_program_began(learnt: Any) -> None:
    source = """
        import os, signal, sys
        fds = sorted(os.listdir("/proc/self/fd"), key=int)
        mask = os.umask(0)
        signals = [number for number in signal.valid_signals() if signal.getsignal(number) != signal.SIG_DFL]
        state = [fds, mask, signals, signal.pthread_sigmask(0, ()), os.getcwd(), sys.argv, sorted(os.environ.items())]
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
        signal.alarm(1000)
        os.chdir("own")
        open("../created", "w")
        import finds
        print(*state, finds.VALUE, sys.stdin.read(), sep="\\n")
    """
    script = learnt.script(source, "state.py")
    done = learnt.run("--verbose", script, "--lr", "0.1", input="given")
    expected = learnt.plain(script, "--lr", "0.1", input="given")
    assert done.stdout.splitlines() == expected.stdout.splitlines()
    assert "imports read configuration in the working directory" in done.stderr


EFFECTS = {"prints": "print('begins', flush=True)", "reads": "input()", "starts": "import os; os.system('true')"}


@pytest.mark.slow
def test_options_before_the_command_stay_before_it(learnt: Any) -> None:
    script = learnt.script("import configures, uses, sys; print(uses.VALUE, sys.argv[1:])", "options.py")
    words = [sys.executable, "-m", "jitserver", "--address", learnt.variables["JITSERVER_ADDRESS"], "run"]
    options: Any = {"env": learnt.variables, "cwd": learnt.folder, "capture_output": True, "text": True}
    for program, shown in ([script, "run", "--fresh"], ["run", "--fresh"]), (["-m", "options", "x"], ["x"]):
        done = subprocess.run([*words, "--no-jit", "--verbose", *program], check=True, timeout=SECONDS, **options)
        assert done.stdout == f"x {shown}\n"
        assert "environment variable VARIABLE differs" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("effect", EFFECTS)
def test_a_program_that_had_effects_goes_on_and_is_fresh_from_then_on(effect: str, learnt: Any) -> None:
    learnt.script(EFFECTS[effect], f"begins_{effect}.py")
    script = learnt.script(f"import begins_{effect}, configures, uses; print(uses.VALUE)", f"effect_{effect}.py")
    first = learnt.run("--verbose", script, input="typed\n")
    assert first.stderr.count("\n") == 1, first.stderr
    assert first.stdout.endswith("None\n")
    assert "environment variable VARIABLE differs from its value when the helper imported uses" in first.stderr
    assert "This comes too late for this run" in first.stderr
    second = learnt.run("--verbose", script, input="typed\n")
    assert second.stdout.endswith("x\n")
    assert "after it had written something" in second.stderr


@pytest.mark.slow
def test_the_helper_itself_may_import_what_is_hidden(cold: Any, site: Path, until: Any) -> None:
    install(site, "uses", "import email.message; VALUE = email.message.Message")
    # Imported for the helper itself, between its imports for runs.
    install(
        site,
        "sitecustomize",
        """
        import os
        own = os.fork
        def fork():
            import email.message
            return own()
        os.fork = fork
    """,
    )
    learn(cold, until, "uses")
    script = cold.script("import sys; print('email.message' in sys.modules); import uses; print(uses.VALUE)")
    done = cold.run("--verbose", script)
    assert (done.stdout.splitlines()[1:], done.stderr) == (["<class 'email.message.Message'>"], "")


@pytest.mark.slow
@pytest.mark.parametrize("first", ["jax", "optax"])
def test_jits_are_routed_and_operations_reused_whichever_package_is_first(first: str, learnt: Any, until: Any) -> None:
    learn(learnt, until, "optax", "jax")
    places = "type(jax.jit(len)).__module__, jax._src.pjit._infer_params.__module__"
    done = learnt.run("--verbose", learnt.script(f"import {first}\nimport jax\nprint({places})"))
    assert done.stderr == ""
    assert done.stdout.split() == ["jitclient.calls.remote_function", "jitclient.jaxside.operations.reuse"]


@pytest.mark.slow
def test_what_hidden_packages_have_registered_makes_no_other_program(
    cold: Any, site: Path, until: Any, new_daemon: Any
) -> None:
    install(site, "table", "CLASSES = {}\ndef has(cls):\n    return cls in CLASSES")
    install(site, "adds", "import table\nclass Own: pass\ntable.CLASSES[Own] = 1")
    script = cold.script(
        "import jax, sys, table\nprint(jax.jit(lambda x: x + table.has(int))(1.0), 'adds' in sys.modules)",
        "reads.py",
    )
    report = {"JITSERVER_REPORT": "lines"}  # which the helper has not
    with new_daemon(cold.variables["JITSERVER_ADDRESS"], env={"PYTHONPATH": cold.variables["PYTHONPATH"]}):
        assert "compiled" in cold.run(script, env=report).stderr
        learn(cold, until, "adds", "table", "jax")
        done = cold.run("--verbose", script, env=report)
    assert (done.stdout, "found in" in done.stderr) == ("1.0 False\n", True), done.stderr


@pytest.mark.slow
def test_a_fresh_process_can_be_asked_for(learnt: Any) -> None:
    done = learnt.run("--fresh", "--verbose", learnt.script("import uses; print(uses.VALUE)"))
    assert (done.stdout, done.stderr) == (
        "None\n",
        "jitserver: the program runs in a fresh process: --fresh was given\n",
    )


@pytest.mark.slow
def test_a_package_that_imports_jax_first_and_sets_it_is_left_to_the_runs(cold: Any, site: Path, until: Any) -> None:
    package = site / "doubles"
    package.mkdir()
    # Its part is imported before jax, so a helper imports the package before jax, too.
    (package / "__init__.py").write_text(
        "from doubles import part\nimport jax\njax.config.update('jax_enable_x64', True)\n"
    )
    (package / "part.py").touch()
    learn(cold, until, "doubles", "jax")
    script = cold.script("import jax.numpy as jnp\nprint(jnp.ones(1).dtype)")
    done = cold.run("--verbose", script)
    assert (done.stdout, done.stderr) == ("float32\n", "")
    assert cold.run(cold.script("import doubles, jax.numpy as jnp\nprint(jnp.ones(1).dtype)")).stdout == "float64\n"
