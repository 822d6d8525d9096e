"""The limits and the processors of a process outlive `exec`, and are restored before it."""

import os
import resource
from typing import Any


def test_limits_and_processors_are_restored(run_script: Any) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    program = f"""
        import os, resource
        from jitserver.run.fresh_start import ProcessAttributes

        before = ProcessAttributes()
        os.sched_setaffinity(0, {{min(os.sched_getaffinity(0))}})
        resource.setrlimit(resource.RLIMIT_NOFILE, ({min(soft, 100)}, {hard}))
        before.restore()
        print([resource.getrlimit(resource.RLIMIT_NOFILE)[0], len(os.sched_getaffinity(0))])
    """
    assert run_script(program) == [soft, len(os.sched_getaffinity(0))]
