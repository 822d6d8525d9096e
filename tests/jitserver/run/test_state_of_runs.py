"""Random runs under one helper, which learns what they import: each has the output and the state of plain `python`."""

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .conftest import SECONDS

SEQUENCES, RUNS = int(os.environ.get("JITSERVER_TEST_SEQUENCES", "3")), 10

EFFECTS = {
    "logs": "import logging; logging.basicConfig(format='ours %(message)s')",
    "levels": "import logging; logging.root.setLevel(logging.DEBUG)",
    "quiet": "import logging; logging.disable(logging.ERROR)",
    "warns": "import warnings; warnings.simplefilter('error')",
    "shows": "import warnings; warnings.showwarning = lambda *_, **__: print('shown')",
    "signals": "import signal; signal.signal(signal.SIGUSR1, print)",
    "sets": "import os; os.environ['SET_BY_IMPORT'] = 'x'",
    "moves": "import os; os.chdir('/')",
    "masks": "import os; os.umask(0o077)",
    "threads": "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()",
    "seeds": "import random; random.seed(5); import numpy; numpy.random.seed(6)",
    "numerics": "import numpy; numpy.seterr(all='ignore'); numpy.set_printoptions(precision=2)",
    "draws": "import matplotlib; matplotlib.rcParams['lines.linewidth'] = 9",
    "collects": "import gc; gc.set_threshold(5)",
    "decides": "import decimal; decimal.getcontext().prec = 5",
    "recurses": "import sys; sys.setrecursionlimit(5000)",
    "prints": "print('imported')",
    "patches": "import json; json.dumps = lambda *_: 'patched'",
    "hooks": "import sys; sys.excepthook = lambda *_: print('hooked')",
    "adds": "import sys; sys.path.append('/more')",
    "waits": "import socket; socket.setdefaulttimeout(5)",
    "harmless": "VALUE = 1",
}
"""Packages, each with an effect of its import on code that does not import it."""

PROBE = """
import decimal, gc, json, locale, logging, os, random, signal, socket, sys, threading, warnings
import matplotlib, numpy
mask = os.umask(0)
os.umask(mask)
print(sorted(os.environ.items()), os.getcwd(), mask, sys.argv[1:], sys.path[1:])
print(logging.root.level, len(logging.root.handlers), logging.root.manager.disable)
wide = [each for each in warnings.filters if each[1] is None and each[3] is None]
print([each[0] for each in wide if each[2].__module__ == "builtins"], threading.active_count())
print([str(signal.getsignal(number)).partition(" at ")[0] for number in sorted(signal.valid_signals())])
print(numpy.geterr(), numpy.array([1 / 3]), gc.get_threshold(), decimal.getcontext().prec, sys.getrecursionlimit())
print(json.dumps([1]), socket.getdefaulttimeout(), locale.setlocale(locale.LC_ALL))
print(random.random() == random.Random(5).random(), numpy.random.rand() == numpy.random.RandomState(6).rand())
print(matplotlib.rcParams["lines.linewidth"])
logging.warning("a warning of logging")
warnings.warn("a warning")
1 / 0
"""


@pytest.fixture(scope="module")
def ours(warm: Any) -> Any:
    """An environment whose installed packages have effects."""
    site = warm.folder / "lib" / "site-packages"
    site.mkdir(parents=True)
    for name, source in EFFECTS.items():
        (site / f"{name}.py").write_text(source)
    warm.variables["PYTHONPATH"] = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))
    warm.variables["MPLBACKEND"] = "agg"
    warm.warm()
    return warm


@pytest.mark.slow
@pytest.mark.parametrize("sequence", [0, *(pytest.param(n, marks=pytest.mark.thorough) for n in range(1, SEQUENCES))])
@pytest.mark.timeout(20 * SECONDS)
def test_a_run_is_as_under_python_whatever_others_have_imported(sequence: int, ours: Any, until: Any) -> None:
    draw = random.Random(sequence)
    for _ in range(RUNS):
        names = draw.sample(sorted(EFFECTS), draw.randrange(4))
        # Of a name of its own: some of these programs must run in fresh processes, which is noted by the path.
        script = ours.script("\n".join([*(f"import {name}" for name in names), PROBE]), f"{'_'.join(names)}_probe.py")
        ours.compared(script)
        if draw.random() < 0.3:
            ours.warm()
    until(lambda: not ours.compared(ours.script(PROBE, "probe.py")), "a run that begins in a helper", SECONDS)


@pytest.mark.slow
def test_the_probe_shows_each_effect(tmp_path: Path) -> None:
    """Otherwise the test above could not fail."""
    shown = {}
    for name, source in {**EFFECTS, "": ""}.items():
        (tmp_path / "script.py").write_text(f"{source}\n{PROBE}")
        done = subprocess.run(
            [sys.executable, str(tmp_path / "script.py")],
            env={**os.environ, "MPLBACKEND": "agg"},
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
        )
        shown[name] = done.stdout, "".join(done.stderr.splitlines(keepends=True)[-1:]), "ours" in done.stderr
    same = {name for name, text in shown.items() if text == shown[""]}
    assert same == {"", "harmless"}
