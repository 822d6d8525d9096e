"""A profile of a program whose daemon is on another machine."""

import json
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.slow

PROFILED = """
    import json, pathlib
    import jax, jitclient
    import numpy as np
    from jax.profiler import ProfileData

    @jitclient.jit
    def profiled(x):
        return x @ x

    x = np.ones((4, 4), np.float32)
    np.asarray(profiled(x))
    log = pathlib.Path(__file__).parent / "log"
    with jax.profiler.trace(log), jax.profiler.TraceAnnotation("around"):
        np.asarray(profiled(x))
    found = {}
    for path in log.rglob("*.xplane.pb"):
        for plane in ProfileData.from_file(str(path)).planes:
            for event in (event for line in plane.lines for event in line.events):
                if event.name == "around" or event.name.startswith("profiled(f32[4,4]) of "):
                    found["_daemon" in path.name, event.name.partition("(")[0]] = event.start_ns, event.end_ns
    print(json.dumps([found[False, "around"], found[True, "around"], found[True, "profiled"]]))
"""


def test_the_daemons_part_comes_home_on_this_machines_clock(run_there: Callable[..., Any]) -> None:
    done = run_there(PROFILED)
    assert done.returncode == 0, done.stderr
    assert "not in this profile" not in done.stderr
    here, there, run = json.loads(done.stdout.splitlines()[-1])
    assert there[0] <= run[0] <= run[1] <= there[1]
    # Both machines have in fact the same clock, so the measured difference is at most half of a round trip.
    assert abs(run[0] - here[0]) < 60e9
