"""The umask, the limits and the processors of a process outlive `exec`, and are restored before it."""

import os
import resource
import subprocess
import sys
from typing import Any

RESTARTS = """
import os
from jitserver.run.helper import Helper
from jitserver.run.fresh_start import ProcessAttributes

os.umask(0o022)
helper = Helper.__new__(Helper)
helper._cwd, helper._environment, helper._attributes = "/", {}, ProcessAttributes(0o022)
os.umask(0o077)  # as an import may do
os.execve = lambda *_: print(os.umask(0))
helper._restart()
"""


def test_a_helper_that_starts_again_has_the_umask_from_before() -> None:
    done = subprocess.run([sys.executable, "-c", RESTARTS], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(0o022)]


def test_limits_and_processors_are_restored(run_script: Any) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    program = f"""
        import os, resource
        from jitserver.run.fresh_start import ProcessAttributes

        before = ProcessAttributes(0o022)
        os.sched_setaffinity(0, {{min(os.sched_getaffinity(0))}})
        resource.setrlimit(resource.RLIMIT_NOFILE, ({min(soft, 100)}, {hard}))
        before.restore()
        print([resource.getrlimit(resource.RLIMIT_NOFILE)[0], len(os.sched_getaffinity(0)), os.umask(0)])
    """
    assert run_script(program) == [soft, len(os.sched_getaffinity(0)), 0o022]
