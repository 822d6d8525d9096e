"""Every kind of function of the capture's matrix through a live daemon: right at once, and known to the next process.

The kinds are those of `tests/jitclient/capture/kinds_*.py`. Where they are edited, each program is also compared with
what a trace in the client gives. That every edit has another key is tested beside them.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ..jitclient.capture.test_matrix import KINDS, NONE, ONE_EDIT, write_kinds

HERE = Path(__file__).parent
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

TRACED_IN_THE_CLIENT = {
    "global_containers": "a set in a dictionary, of which bytecode does not show who reads it",
    "set_of_functions": "the order of addresses",
    "weak_containers": "the order of addresses",
    "lru_cached": "the trace fills a cache",
    "nnx_jit_inside": "the trace on the daemon raised",
}
"""Kind -> why."""

ORDERED = ("global_containers", "set_of_functions")
"""The order of a set decides their programs: under another hash seed, or at other addresses, it may be another one."""

LEAVES_A_TRACER = ("nnx_jit_inside",)
"""Kinds whose first error leaves a tracer in a module, so that they raise another error afterwards."""


@pytest.fixture(scope="module")
def live(tmp_path_factory, new_daemon):
    """Calls all kinds, edited or not, in a fresh process, through one daemon; returns the report."""
    base = tmp_path_factory.mktemp("live")
    address = f"unix:{os.environ['XDG_RUNTIME_DIR']}/live.sock"

    def call(name, edits=NONE):
        folder, out = base / name, base / f"{name}.json"
        write_kinds(folder, edits=edits)
        command = [sys.executable, "-P", str(HERE / "live_matrix_worker.py"), str(folder), str(out)]
        environment = {**os.environ, "PYTHONHASHSEED": str(len(name)), "PYTHONDONTWRITEBYTECODE": "1"}
        environment.update(JITSERVER_ADDRESS=address, JITSERVER_VERIFY="always" if edits else "new")
        done = subprocess.run(command, env=environment, check=False, timeout=600, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return json.loads(out.read_text())

    with new_daemon(address):
        yield call


@pytest.fixture(scope="module")
def first(live):
    return live("first")


def test_the_daemon_answers_what_jax_answers(first):
    assert len(KINDS) >= 60
    assert differing(first) == {}


def test_the_next_process_finds_them(live, first):
    again = live("moved/again")
    for kind in KINDS:
        counted = again[kind]["counted"]
        raises = "raised" in first[kind]["jax"]
        assert outcome_of(again[kind]["daemon"]) == outcome_of(first[kind]["daemon"]), kind
        assert counted["client_traces"] == (kind in TRACED_IN_THE_CLIENT and not raises), kind
        assert counted["local_runs"] == 0, kind
        if kind in ORDERED:
            assert counted["compiles"] + counted["hits"] == 1, kind
        else:
            assert (counted["compiles"], counted["hits"]) == (0, not raises), kind
    traces = {kind: again[kind]["counted"]["traces"] for kind in KINDS}
    # Only what raises is traced again. The daemon may still be tracing when its client calls the next kind.
    assert sum(traces.values()) <= sum("raised" in first[kind]["jax"] for kind in KINDS), traces


def test_after_an_edit_the_daemon_answers_what_jax_answers(live, first):
    assert differing(live("edited", edits=ONE_EDIT)) == {}


def differing(report):
    """Return what the report has of the kinds that differ: from jax.jit in anything, from plain Python by rounding."""
    return {kind: found for kind, found in report.items() if not agrees(found, kind)}


def agrees(found, kind):
    daemon, jitted, direct = (found[by] for by in ("daemon", "jax", "direct"))
    if kind in LEAVES_A_TRACER:
        return "raised" in daemon and "raised" in jitted
    if outcome_of(daemon) != outcome_of(jitted):
        return False
    if "raised" in direct or "raised" in jitted:
        return True
    return daemon[1] == direct[1] and np.allclose(daemon[2], direct[2], rtol=1e-5, atol=1e-5, equal_nan=True)


def outcome_of(found):
    """A value, or the type of what was raised."""
    return found.get("raised", found) if isinstance(found, dict) else found
