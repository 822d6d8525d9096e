"""An installed package's reads from outside while it is traced: noticed where they matter."""

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import pytest

READS = {
    "a variable": 'float(os.environ["UM_SCALE"])',
    "a variable, by getenv": 'float(os.getenv("UM_SCALE"))',
    "whether there is a variable": '2.0 + ("UM_NONE" in os.environ)',
    "all variables": '2.0 + ("UM_NONE" in {**os.environ})',
    "how many variables": "2.0 + 0 * len(os.environ)",
    "the clock": "min(time.time(), 2.0)",
    "the clock, imported by name": "min(perf_counter(), 2.0)",
    "the date": "min(datetime.date.today().year, 2.0)",
    "the time as text": '2.0 + 0 * int(time.strftime("%Y"))',
    "randomness of the system": "2.0 + 0 * os.urandom(1)[0]",
    "randomness of the system, by name": "2.0 + 0 * urandom(1)[0]",
    "a secret": "2.0 + 0 * secrets.randbelow(9)",
    "a random identifier": "2.0 + 0 * (uuid.uuid4().int % 9)",
    "an identifier made of the clock": "2.0 + 0 * (uuid.uuid1().int % 9)",
    "a generator without a seed": "2.0 + 0 * random.Random().random()",
    "a generator of numpy without a seed": "2.0 + 0 * np.random.default_rng().random()",
    "whether a file is there": "2.0 + os.path.exists(FILE + 'x')",
    "whether a path is there": "2.0 + Path(FILE + 'x').exists()",
    "when a file was changed": "2.0 + 0 * os.path.getmtime(FILE)",
    "how large a file is": "2.0 + 0 * os.stat(FILE).st_size",
    "the folder": "2.0 + 0 * len(os.getcwd())",
    "the folder, in a path": '2.0 + 0 * len(os.path.abspath("a"))',
    "the process": "2.0 + 0 * os.getpid()",
    "the name of the host": "2.0 + 0 * len(socket.gethostname())",
    "the name of the host, which `platform` keeps": "2.0 + 0 * len(platform.node())",
    "the kernel, which `platform` keeps": "2.0 + 0 * len(platform.release())",
    "the system in words": "2.0 + 0 * len(platform.platform())",
    "a number of the system's": '2.0 + 0 * os.sysconf("SC_NPROCESSORS_ONLN")',
    "the processor": '2.0 + 0 * len(open("/proc/cpuinfo").readline())',
    "whether a file about the machine is there": '2.0 + 0 * os.path.exists("/sys/devices")',
    "a shared library": "2.0 + 0 * is_library(FILE)",
    "memory that others have": "2.0 + 0 * len(mmap.mmap(memory(), 1))",
    "what a caller in the standard library reads": "2.0 + 0 * len(shutil.which('nothing') or '')",
}
READS_NONE = {
    "nothing": "2.0",
    "a generator with a seed": "2.0 + 0 * random.Random(1).random()",
    "a generator of numpy with a seed": "2.0 + 0 * np.random.default_rng(1).random()",
    "another time as text": '2.0 + 0 * int(time.strftime("%Y", time.gmtime(0)))',
    "a file of an installed package": "2.0 + 0 * os.path.getsize(np.__file__)",
    "whether a logger is on": "2.0 + 0 * logging.getLogger('um').isEnabledFor(10)",
    "memory of its own": "2.0 + 0 * len(mmap.mmap(-1, 1))",
    "the architecture, which the key has": "2.0 + 0 * len(platform.machine())",
    "a library of the system": "2.0 + 0 * bool(ctypes.CDLL(None))",
    "a log record": "2.0 + 0 * bool(logging.getLogger('um').warning('a record'))",
    "a warning": "2.0 + 0 * bool(warnings.warn('of no consequence'))",
    "a traceback": "2.0 + 0 * len(traceback.format_stack())",
    "a lazy import": "2.0 + 0 * __import__('um_lazy').SCALE",
    "what jax reads": "jax.jit(lambda: jnp.float32(2.0))()",
}
USES = {**READS, **READS_NONE}

LIBRARY = """
import ctypes, datetime, logging, mmap, os, platform, random, secrets, shutil, socket, time, traceback, uuid, warnings
from os import urandom
from pathlib import Path
from time import perf_counter

import jax, jax.numpy as jnp, numpy as np

FILE = {file!r}
platform.platform()

def memory():
    number = os.memfd_create("um")
    os.truncate(number, 1)
    return number

def is_library(path):
    try:
        return bool(ctypes.CDLL(path))
    except OSError:
        return False
"""
LAZY = """
import os, time
SCALE = float(os.environ.get("UM_SCALE", 0)) + time.time() + os.path.exists("/sys/devices")
open("/proc/cpuinfo").close()
"""
COUNTED = ("value", "traces", "hits", "client_traces", "local_runs")
PROGRAM = f"""
import json, numpy as np, jitclient, um_reads
from jitclient.session import process
from jitclient.wire.introspection import Status
from jitclient.wire.messages import Verb

def counts():
    process.session().send_report()
    status = process.session().ask(Verb.STATUS, None, Status)
    return [getattr(status, name) for name in {COUNTED[1:]}]

def called(number):
    reader = getattr(um_reads, f"reads_{{number}}")
    before = counts()
    value = float(jitclient.jit(lambda x: x * reader())(np.float32(1)))
    return [value, *(after - was for after, was in zip(counts(), before, strict=True))]

print(json.dumps([called(number) for number in range(um_reads.COUNT)]))
"""


@pytest.fixture(scope="module")
def reports(new_daemon: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, list[float]]]:
    """Of two processes: what a function of each kind gave, and what was traced, found and traced in the client."""
    base = tmp_path_factory.mktemp("reads")
    site = base / "site-packages"
    site.mkdir()
    file = base / "file"
    file.write_text("2.0")
    text = LIBRARY.format(file=str(file))
    for number, use in enumerate(USES.values()):
        text += f"\n\ndef reads_{number}():\n    return {use}\n"
    (site / "um_reads.py").write_text(f"{text}\n\nCOUNT = {len(USES)}\n")
    (site / "um_lazy.py").write_text(LAZY)
    (base / "program.py").write_text(textwrap.dedent(PROGRAM))
    address = f"unix:{os.environ['XDG_RUNTIME_DIR']}/reads.sock"
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    env = {**os.environ, "JITSERVER_ADDRESS": address, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    found = []
    with new_daemon(address, env={"PYTHONPATH": path, "UM_SCALE": "9.0"}):
        for scale in ("2.0", "3.0"):
            done = subprocess.run(
                [sys.executable, str(base / "program.py")],
                env={**env, "UM_SCALE": scale},
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            said = [dict(zip(COUNTED, each, strict=True)) for each in json.loads(done.stdout.splitlines()[-1])]
            found.append(dict(zip(USES, said, strict=True)))
    return found


@pytest.mark.parametrize("use", READS)
def test_what_reads_the_world_is_traced_in_each_process(reports: list[dict[str, Any]], use: str) -> None:
    first, second = (report[use] for report in reports)
    assert (first["traces"], first["client_traces"], first["local_runs"]) == (1, 1, 0)
    assert (second["traces"], second["client_traces"], second["local_runs"]) == (0, 1, 0)
    assert first["value"] == 2.0
    assert second["value"] == (3.0 if "UM_SCALE" in READS[use] else 2.0)


@pytest.mark.parametrize("use", READS_NONE)
def test_what_does_not_matter_is_traced_once(reports: list[dict[str, Any]], use: str) -> None:
    first, second = (report[use] for report in reports)
    assert first == {"value": 2.0, "traces": 1, "hits": 0, "client_traces": 0, "local_runs": 0}
    assert second == {"value": 2.0, "traces": 0, "hits": 1, "client_traces": 0, "local_runs": 0}


def test_stand_ins_pass_for_what_they_stand_for() -> None:
    script = """
from jitserver.programs.traces import ambient_reads
ambient_reads.install()
import copy, os, pickle, sys, time
from jitclient.capture.ambient.inputs import ambient_name
assert "jax" not in sys.modules, "too late"
assert {os.stat} <= os.supports_follow_symlinks and os.stat in os.supports_fd
assert pickle.loads(pickle.dumps(os.stat)) is os.stat and copy.deepcopy(time.time) is time.time
assert [ambient_name(f) for f in (time.time, os.stat, os.environ)] == ["time.time", "os.stat", "os.environ"]
class Timer:
    now = time.time
assert Timer().now() > 0
assert os.stat("/", follow_symlinks=False).st_ino and time.time.__name__ == "time"
"""
    subprocess.run([sys.executable, "-c", script], check=True)
