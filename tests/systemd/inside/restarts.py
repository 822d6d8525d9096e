"""Planned restarts where systemd runs the daemon: what a program holds outlasts them, and a stop ends it."""

import sys

from harness import User

u = User("u", manager=True)


def check_a_restart_keeps_arrays_and_a_stop_does_not() -> None:
    done = u.json("install")
    program = f"""
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
    (u.home / "restarts.py").write_text(program)
    ran = u.run(sys.executable, "restarts.py")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "lost\n"
