"""A process that is forked from a template is like a fresh one, and a child of this process."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from . import templates

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not templates.is_asked_for(), reason="NOT TESTED: set JITSERVER_TEST_FORKED=1"),
]

LOOK = """
import sys
first = sys._getframe()
import gc, json, os, random, resource, signal, threading, warnings
import jax, numpy
from jax._src import xla_bridge

def stream(of):
    raw = getattr(of.buffer, "raw", of.buffer)
    kept = of.encoding, of.errors, of.line_buffering, of.write_through, of.mode, of.name, of.seekable()
    return [type(of.buffer).__name__, raw.name, raw.mode, raw.closefd, *kept]

def status():
    kept = "Name Umask Uid Gid Groups SigBlk SigIgn SigCgt CapEff NoNewPrivs Cpus_allowed"
    lines = (line.split(":") for line in open("/proc/self/status"))
    return {name: value for name, value in lines if name in kept.split()}

thread = threading.current_thread()
names = [name for name in vars(resource) if name.startswith("RLIMIT_")]
print(json.dumps({
    "words": [sys.argv, sys.orig_argv, open("/proc/self/cmdline", errors="replace").read()],
    "paths": [sys.path, sys.executable, os.getcwd()],
    "options": [repr(sys.flags), sys._xoptions, sys.warnoptions, sys.dont_write_bytecode],
    "environment": [dict(os.environ), open("/proc/self/environ", errors="replace").read()],
    "descriptors": sorted(os.listdir("/proc/self/fd"), key=int)[:-1],
    "handlers": {each.name: repr(signal.getsignal(each)) for each in signal.Signals},
    "status": status(),
    "limits": [resource.getrlimit(getattr(resource, name)) for name in names],
    "priority": os.getpriority(os.PRIO_PROCESS, 0),
    "parent": os.getppid(),
    "groups": [os.getpgrp() == os.getpid(), os.getsid(0) == os.getpid()],
    "main": [__name__, globals().get("__file__"), repr(__spec__), __loader__.__class__.__name__, sorted(globals())],
    "is_main": sys.modules["__main__"].__dict__ is globals(),
    "streams": [stream(of) for of in (sys.stdin, sys.stdout, sys.stderr)],
    "original": [sys.stdin is sys.__stdin__, sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__],
    "garbage": [gc.get_threshold(), gc.isenabled(), len(gc.callbacks)],
    "filters": repr(warnings.filters),
    "thread": [thread.name, thread is threading.main_thread(), threading.active_count()],
    "id": thread.native_id == os.getpid(),
    "interpreter": [sys.getswitchinterval(), sys.getrecursionlimit(), [repr(found) for found in sys.meta_path]],
    "is_first_frame": first.f_back is None,
    "given": sys.stdin.read(),
    "hash": hash("text"),
    "backends": list(xla_bridge._backends),
    "random": [random.random(), numpy.random.rand()],
    "modules": sorted(sys.modules),
}, default=repr))
"""

ENDINGS = [
    "raise ValueError(3)",
    "import sys; sys.exit(7)",
    "import sys; sys.exit('why')",
    "raise KeyboardInterrupt",
    "import os; os.kill(os.getpid(), 9)",
    "import atexit; atexit.register(print, 'at the end'); 1 / 0",
    "import threading; threading.Timer(0.1, print, ['from a thread']).start()",
    "import os; os._exit(9)",
    "import sys; sys.stdout.write('not flushed')",
    "import os; print(os.fork() and os.wait()[1])",
    "print(jax.jit(lambda x: x + 1)(1))",
    "this is no Python",
]

Start = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def fresh_and_forked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Start]]:
    """Two functions that run a command, in a fresh process and in a forked one."""
    forked: list[int] = []
    fork = templates._Template.fork
    monkeypatch.setattr(templates._Template, "fork", lambda *given: forked.append(fork(*given)) or forked[-1])

    def run(is_forked: bool, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
        templates.is_allowed = is_forked
        known = {"env": {**os.environ, "PYTHONHASHSEED": "3"}, "input": "some input"}
        for _ in range(1 + is_forked):  # there is no template for the first one
            del forked[:]
            done = subprocess.run([sys.executable, *words], capture_output=True, text=True, **{**known, **options})
        assert bool(forked) == is_forked
        return done

    yield [lambda *words, is_forked=is_forked, **options: run(is_forked, *words, **options) for is_forked in (0, 1)]
    templates.is_allowed = True


@pytest.mark.parametrize("how", ["file", "command", "safe path", "session", "unbuffered", "variables", "descriptors"])
def test_process_that_is_forked_sees_what_fresh_sees(how: str, fresh_and_forked: list[Start], tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(LOOK)
    if how == "command" and sys.version_info >= (3, 13):
        pytest.skip("commands are not forked there")
    words = ["-c", LOOK] if how == "command" else ["program.py"]
    words = ["-P", *words] if how == "safe path" else words
    options: dict[str, Any] = {"cwd": tmp_path}
    changed = {"unbuffered": {"PYTHONUNBUFFERED": "1"}, "variables": {"JAX_ENABLE_X64": "1", "JITSERVER_X": "\udcff"}}
    options["env"] = {**os.environ, "PYTHONHASHSEED": "3", **changed.get(how, {})}
    options["start_new_session"] = how == "session"
    with (tmp_path / "opened").open("w") as file:
        options["pass_fds"] = [file.fileno()] if how == "descriptors" else []
        fresh, forked = (json.loads(run(*words, "an argument", **options).stdout) for run in fresh_and_forked)
    assert fresh.pop("random") != forked.pop("random")
    assert set(fresh.pop("modules")) <= set(forked.pop("modules"))
    if not templates._HAS_FIRST_FRAME:
        assert fresh.pop("is_first_frame") != forked.pop("is_first_frame")
    assert fresh == forked
    assert forked["parent"] == os.getpid()


@pytest.mark.parametrize("ending", ENDINGS)
def test_process_that_is_forked_ends_as_fresh_ends(ending: str, fresh_and_forked: list[Start], tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(f"import jax\n{ending}\n")
    fresh, forked = (run("program.py", cwd=tmp_path) for run in fresh_and_forked)
    assert (forked.returncode, forked.stdout, forked.stderr) == (fresh.returncode, fresh.stdout, fresh.stderr)


def test_processes_without_seed_have_different_ones(fresh_and_forked: list[Start]) -> None:
    _, forked = fresh_and_forked
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONHASHSEED"}
    found = [forked("-c", "import jax; print(hash('text'))", env=environment).stdout for _ in range(2)]
    found += [forked("-c", "import jax, random; print(random.random())", env=environment).stdout for _ in range(2)]
    assert len(set(found)) >= 3  # the two templates, and no two random numbers


def test_imports_of_templates_read_no_ignored_variable() -> None:
    source = """
import os, sys
read, get = set(), os._Environ.__getitem__
os._Environ.__getitem__ = lambda self, name: read.add(name) or get(self, name)
sys.modules.pop("subprocess", None)
from importlib import import_module
from jitserver.daemon import process_setup
process_setup.install_read_detection()
for name in sys.argv[1].split():
    import_module(name)
print(*read)
"""
    modules = f"{templates._THIRD_PARTY} {templates._DAEMON}"
    done = subprocess.run([sys.executable, "-c", source, modules], capture_output=True, text=True, check=True)
    read = done.stdout.split()
    assert len(read) > 10
    assert not [name for name in read if templates.is_ignored(name)]


def test_templates_end_with_the_process_of_the_tests(tmp_path: Path) -> None:
    source = """
import os, subprocess, sys
from tests import templates
templates.install()
for _ in range(2):
    subprocess.run([sys.executable, "-c", "import jax"], check=True)
print(*(template.process.pid for template in templates._templates.values()), flush=True)
os.kill(os.getpid(), 9)
"""
    top = Path(__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", source], cwd=top, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    (pid,) = map(int, done.stdout.split())
    with contextlib.suppress(ProcessLookupError):  # it has gone already
        assert select.select([os.pidfd_open(pid)], [], [], 60)[0]
