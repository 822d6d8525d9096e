"""Each kind of global state that an import may change is compared, and what is a module's own is not."""

import json
import subprocess
import sys
import textwrap

import pytest

from jitserver.run.process_state import ProcessState

CHANGES = {
    "import sys; sys.stdout = open('/dev/null', 'w')": "the standard streams",
    "import sys; sys.stdin.reconfigure(errors='ignore')": "the standard streams",
    "import os; os.environ['SET'] = 'x'": "environment variables",
    "import os; os.putenv('SET', 'x'); os.environ.pop('HOME')": "environment variables",
    "import os; kept = os.open('/dev/null', os.O_RDONLY)": "open file descriptors",
    # FE_UPWARD of x86, and that of Arm: each machine refuses the other.
    "import ctypes; libm = ctypes.CDLL('libm.so.6'); [libm.fesetround(each) for each in (0x800, 0x400000)]": (
        "arithmetic of the processor"
    ),
    "import os; os.chdir('/tmp')": "the working directory",
    "import os; os.umask(0o077)": "the umask",
    "import resource as r; r.setrlimit(r.RLIMIT_CORE, (0, 0))": "resource limits",
    "import os; os.setpriority(os.PRIO_PROCESS, 0, 5)": "the processors or the priority",
    "import locale; locale.setlocale(locale.LC_ALL, 'C')": "the locale",
    "import os, time; os.environ['TZ'] = 'Asia/Tokyo'; time.tzset(); del os.environ['TZ']": "the time zone",
    "import signal; signal.signal(signal.SIGUSR1, print)": "signal handlers",
    "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])": "blocked signals",
    "import signal; signal.setitimer(signal.ITIMER_VIRTUAL, 100)": "timers",
    "import faulthandler; faulthandler.enable()": "faulthandler",
    "import sys; sys.excepthook = print": "sys.excepthook",
    "import sys; sys.displayhook = print": "sys.displayhook",
    "import sys; sys.unraisablehook = print": "sys.unraisablehook",
    "import sys; sys.breakpointhook = print": "sys.breakpointhook",
    "import sys; sys.setprofile(lambda *_: None)": "hooks of the interpreter",
    "import threading; threading.excepthook = print": "threading.excepthook",
    "import sys; sys.setrecursionlimit(5000)": "settings of the interpreter",
    "import sys; sys.setswitchinterval(0.5)": "settings of the interpreter",
    "import sys; sys.dont_write_bytecode = not sys.dont_write_bytecode": "settings of the interpreter",
    "import sys; sys.argv.append('more')": "settings of the interpreter",
    "import sys; sys.set_int_max_str_digits(0)": "settings of the interpreter",
    "import sys; sys.path.append('/more')": "sys.path",
    "import sys; sys.meta_path.insert(0, sys.meta_path[-1])": "import hooks",
    "import sys; sys.meta_path.pop()": "import hooks",
    "import sys; sys.path_hooks.insert(0, print)": "sys.path_hooks",
    "import builtins; builtins.profile = print": "builtins",
    "import builtins; builtins.print = len": "builtins.print",
    "import warnings; warnings.simplefilter('ignore')": "warning filters",
    "import warnings; warnings.filterwarnings('error', category=DeprecationWarning)": "warning filters",
    "import warnings; warnings.showwarning = print": "warnings.showwarning",
    "import logging; logging.basicConfig()": "logging",
    "import logging; logging.root.setLevel(10)": "logging",
    "import logging; logging.disable()": "logging",
    "import logging; logging.addLevelName(25, 'NOTE')": "logging._levelToName",
    "import logging; logging.setLoggerClass(type('L', (logging.Logger,), {}))": "logging._loggerClass",
    "import logging; logging.setLogRecordFactory(print)": "logging._logRecordFactory",
    "import logging; logging.captureWarnings(True)": "logging._warnings_showwarning",
    "import logging; logging.getLogger('known').setLevel(10)": "loggers",
    "import logging.config as c; c.dictConfig({'version': 1})": "loggers",
    "import gc; gc.disable()": "garbage collection",
    "import gc; gc.set_threshold(5)": "garbage collection",
    "import gc; gc.callbacks.clear()": "callbacks of garbage collection",
    "import tracemalloc; tracemalloc.start()": "tracemalloc",
    "import decimal; decimal.getcontext().prec = 5": "decimal's context",
    "import multiprocessing as m; m.set_start_method('spawn')": "the start method of multiprocessing",
    "import asyncio as a; a.set_event_loop_policy(a.DefaultEventLoopPolicy())": "asyncio.events._event_loop_policy",
    "import socket; socket.setdefaulttimeout(5)": "the timeout of sockets",
    "import copyreg; copyreg.pickle(complex, print)": "how objects are pickled",
    "import numpy; numpy.seterr(all='raise')": "numpy's settings",
    "import numpy; numpy.set_printoptions(precision=2)": "numpy's settings",
    "import matplotlib; matplotlib.rcParams['lines.linewidth'] = 9": "matplotlib's rcParams",
    "import matplotlib; matplotlib.use('svg')": "matplotlib's rcParams",
    "import csv; csv.register_dialect('own')": "dialects of csv",
    "import mimetypes; mimetypes.suffix_map['.x'] = '.y'": "mimetypes.suffix_map",
    "import xml.etree.ElementTree as tree; tree.register_namespace('x', 'y')": "xml.etree.ElementTree._namespace_map",
    "import http.client; http.client._MAXHEADERS = 1000": "http.client._MAXHEADERS",
    "import shutil; shutil.register_archive_format('x', print)": "shutil._ARCHIVE_FORMATS",
    "import urllib.request as r; r.install_opener(r.build_opener())": "urllib.request._opener",
    "import os; os.listdir = print": "os.listdir",
    "import json; json.dumps = print": "json.dumps",
    "import threading; threading.Thread.run = print": "threading.Thread.run",
    "import collections as c; c.Counter.fromkeys = print": "collections.Counter.fromkeys",
    "import uuid; uuid.UUID.hex = property(str)": "uuid.UUID.hex",
    "import importlib.machinery as m; del m.PathFinder.find_distributions": (
        "_frozen_importlib_external.PathFinder.find_distributions"
    ),
    "import numpy; numpy.sum = print": "numpy.sum",
}
OWN = [
    "import logging; logging.getLogger('new').setLevel(10)",
    "import logging; logging.getLogger('package.part').setLevel(10)",
    "import warnings; warnings.filterwarnings('ignore', message='numpy.dtype size changed')",
    "import warnings; warnings.filterwarnings('ignore', module='package')",
    "import warnings; warnings.simplefilter('always', type('Own', (UserWarning,), {}))",
    "import sys; sys.meta_path.append(print)",
    "import sys; sys.meta_path.insert(0, print)",
    "import gc; gc.callbacks.insert(0, print)",
    "import atexit; atexit.register(print)",
    "import copyreg; copyreg.pickle(type('Own', (), {}), print)",
    "import random; random.random()",
    "import tempfile; tempfile.NamedTemporaryFile().close()",
]

PROBE = r"""
    import copyreg, gc, json, logging, os, sys
    import matplotlib, numpy
    from jitserver.run.import_watch import ImportWatch
    from jitserver.run.process_state import ProcessState

    copyreg.pickle(complex, copyreg.pickle_complex)
    gc.callbacks.append(len)
    for name in ("known", "package.part"):
        logging.getLogger(name)
    answers = os.dup(1)
    printed = os.memfd_create("printed")
    os.dup2(printed, 1)
    found = {}
    for source in json.load(sys.stdin):
        read, write = os.pipe()
        if not os.fork():
            try:
                ImportWatch(terminal=False)
                before = ProcessState()
                exec(source, {"__name__": "package"})
                os.write(write, "\n".join(before.changes(ProcessState(), "package")).encode())
            except BaseException as error:
                os.write(write, repr(error).encode())
            os._exit(0)
        os.close(write)
        found[source] = os.fdopen(read).read().splitlines()
        os.wait()
    os.write(answers, json.dumps(found).encode())
"""


@pytest.fixture(scope="module")
def changes() -> dict[str, list[str] | None]:
    """The changes that each source makes, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROBE)],
        input=json.dumps([*CHANGES, *OWN]),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


@pytest.mark.core
def test_a_package_that_imports_another_first_may_have_changed_its_settings() -> None:
    source = """
        from jitserver.run.process_state import ProcessState
        before = ProcessState()
        import matplotlib
        now = ProcessState()
        print([before.changes(now, package) for package in ("matplotlib", "package")])
    """
    done = subprocess.run(
        [sys.executable, "-c", f"import numpy\n{textwrap.dedent(source)}"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=120,
    )
    assert eval(done.stdout) == [[], ["matplotlib's rcParams"]]


@pytest.mark.core
@pytest.mark.parametrize("source", CHANGES)
def test_a_change_is_found(source: str, changes: dict[str, list[str]]) -> None:
    assert changes[source][:1] == [CHANGES[source]]


@pytest.mark.core
@pytest.mark.parametrize("source", OWN)
def test_state_of_its_own_is_no_change(source: str, changes: dict[str, list[str]]) -> None:
    assert changes[source] == []


@pytest.mark.core
def test_names_that_are_not_bound_again_are_copied_once() -> None:
    before, module = ProcessState(), sys.modules[__name__]
    assert ProcessState()._modules["json"] is before._modules["json"]
    assert ProcessState()._classes[json.JSONDecoder] is before._classes[json.JSONDecoder]
    vars(module)["bound_now"] = print
    assert ProcessState()._modules[__name__] is not before._modules[__name__]
