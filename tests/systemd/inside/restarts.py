"""Restarts where systemd runs the daemon: what a program holds outlasts them, and a stop ends it."""

import importlib.metadata
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness import User, until

u = User("u", manager=True)

LOOP = """
import os, pathlib
import numpy as np
import jitclient

@jitclient.jit
def add_one(x):
    return x + 1

state, count = jitclient.device_put(np.zeros(1000, np.uint32)), 0
while not pathlib.Path("stop").exists():
    state, count = add_one(state), count + 1
    if count % 100 == 0:
        assert int(np.asarray(state)[7]) == count
        pathlib.Path("new").write_text(str(count))
        os.replace("new", "count")
assert int(np.asarray(state)[7]) == count
print("same")
"""
WAITS = """
import jax
import numpy as np
import jitclient

def wait(x):
    import pathlib, time
    pathlib.Path("HOME/begun").touch()
    while not pathlib.Path("HOME/gate").exists():
        time.sleep(0.01)
    return x

@jitclient.jit
def slow(x):
    return jax.pure_callback(wait, jax.ShapeDtypeStruct((), "float32"), x) + 1

print(float(slow(np.float32(1))))
"""
CLOSES = """
import os
import numpy as np
import jitclient

@jitclient.jit
def double(x):
    return x * 2

@jitclient.jit
def closes_all_files(x):
    os.closerange(3, 200)
    return x

resident = jitclient.block_until_ready(double(jitclient.device_put(np.float32(21))))
try:
    closes_all_files(np.float32(1))
except jitclient.errors.JitserverError:
    pass
print(float(resident))
"""


def pid() -> int:
    found: int = u.json("status")["pid"]
    return found


def program(source: str) -> str:
    (u.home / "restarts.py").write_text(source.replace("HOME", str(u.home)))
    ran = u.run(sys.executable, "restarts.py")
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def check_a_restart_keeps_arrays_and_a_stop_does_not() -> None:
    done = u.json("install")
    source = f"""
import subprocess, sys
import numpy as np
import jitclient
from jitclient.errors import ArrayLost

@jitclient.jit
def add(x, y):
    return x + y

def command(*words):
    subprocess.run(words, check=True, capture_output=True)

ours = [sys.executable, "-P", "-m", "jitserver"]
x = add(jitclient.device_put(np.arange(1000)), 1)
command(*ours, "restart")
assert np.asarray(x)[7] == 8
x = add(x, 1)
command("systemctl", "--user", "stop", "{done["socket"]}", "{done["service"]}")
command(*ours, "start")
assert np.asarray(add(x, 1))[7] == 10
y = jitclient.device_put(np.arange(1000))
command(*ours, "stop")
command(*ours, "start")
try:
    np.asarray(y)
except ArrayLost:
    print("lost")
"""
    assert program(source) == "lost\n"


def check_a_running_call_finishes_before_a_restart() -> None:
    before, service = pid(), u.json("install")["service"]
    with ThreadPoolExecutor() as pool:
        ran = pool.submit(program, WAITS)
        until(lambda: ran.done() or (u.home / "begun").exists(), "the call to run")
        restarted = pool.submit(u.json, "restart")
        until(lambda: ran.done() or u.systemctl("is-active", service) == "deactivating", "the daemon to drain")
        (u.home / "gate").touch()
        assert restarted.result()["pid"] != before
        assert ran.result() == "2.0\n"


def check_an_upgrade_under_load_changes_no_value() -> None:
    def count() -> int:
        path = u.home / "count"
        return int(path.read_text()) if path.exists() else 0

    before = pid()
    with ThreadPoolExecutor() as pool:
        ran = pool.submit(program, LOOP)
        until(lambda: ran.done() or count(), "the loop to be under way")
        try:
            [metadata] = [file for file in importlib.metadata.files("cloudpickle") or () if file.name == "METADATA"]
            os.utime(Path(str(metadata.locate())))  # as of another version
            u.call()  # a new program makes the daemon look
            assert pid() != before
            begun = count()
            until(lambda: ran.done() or count() > begun, "the loop to go on")
        finally:
            (u.home / "stop").touch()
        assert ran.result() == "same\n"


def check_a_daemon_that_cannot_go_on_is_replaced_and_its_arrays_are_kept() -> None:
    before = pid()
    assert program(CLOSES) == "42.0\n"
    assert pid() != before
