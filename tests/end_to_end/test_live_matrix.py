"""Every kind of function of the capture's matrix through a live daemon: right at once, and known to the next process.

The kinds are those of `tests/jitclient/capture/kinds_*.py`. Where they are edited, each program is also compared with
what a trace in the client gives.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ..jitclient.capture.test_matrix import EDITS, KINDS, NONE, write_kinds

HERE = Path(__file__).parent

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
"""What they raise first leaves a tracer in a module, so that they raise something else afterwards."""


def call_all(folder, address, *flags, seed=0, verify=False):
    """What a fresh process reports that calls all kinds in a folder."""
    out = folder.with_name(f"{folder.name}.json")
    command = [sys.executable, "-P", str(HERE / "live_matrix_worker.py"), str(folder), str(out), *flags]
    environment = {**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.update(JITSERVER_ADDRESS=address, JITSERVER_VERIFY="always" if verify else "new")
    done = subprocess.run(command, env=environment, check=False, timeout=600, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(out.read_text())


@pytest.fixture(scope="module")
def live(tmp_path_factory, new_daemon):
    """Calls all kinds, edited or not, in a fresh process, through one daemon; returns the report."""
    base = tmp_path_factory.mktemp("live")
    address = f"unix:{os.environ['XDG_RUNTIME_DIR']}/live.sock"

    def call(name, *flags, edits=NONE):
        write_kinds(base / name, edits=edits)
        return call_all(base / name, address, *flags, seed=len(name), verify=bool(edits))

    with new_daemon(address):
        yield call


@pytest.fixture(scope="module")
def first(live):
    return live("first", "--compared")


@pytest.fixture(scope="module")
def again(live, first):
    return live("moved/again", "--compared")  # what ran in JAX before is state of packages, too: as in the first


@pytest.fixture(scope="module")
def edited(live, first):
    return [live(f"edit_{n}", "--compared", edits=edits) for n, edits in enumerate(EDITS)]


def test_there_are_many_kinds():
    assert len(KINDS) >= 60


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", KINDS)
def test_the_daemon_answers_what_jax_answers(first, kind):
    compare(first[kind], kind)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", KINDS)
def test_the_next_process_finds_it(first, again, kind):
    counted = again[kind]["counted"]
    raises = "raised" in first[kind]["jax"]
    assert outcome_of(again[kind]["daemon"]) == outcome_of(first[kind]["daemon"])
    assert counted["client_traces"] == (kind in TRACED_IN_THE_CLIENT and not raises)
    assert counted["local_runs"] == 0
    if kind in ORDERED:
        assert counted["compiles"] + counted["hits"] == 1
    else:
        assert (counted["compiles"], counted["hits"]) == (0, not raises)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_daemon_traces_again_what_raises_and_nothing_else(first, again):
    raising = [kind for kind in KINDS if "raised" in first[kind]["jax"]]
    traces = {kind: again[kind]["counted"]["traces"] for kind in KINDS}
    # The daemon may still be at it when its client has raised, and goes on to the next kind.
    assert sum(traces.values()) <= len(raising), traces


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("kind", "edit"), [(name, n) for name, kind in KINDS.items() for n in range(len(kind["edits"]))]
)
def test_after_an_edit_the_daemon_answers_what_jax_answers(edited, kind, edit):
    compare(edited[edit][kind], kind, edit)


def compare(report, kind, edit=None):
    daemon, jitted, direct = (report[by] for by in ("daemon", "jax", "direct"))
    if kind in LEAVES_A_TRACER:
        assert "raised" in daemon
        assert "raised" in jitted
        return
    assert outcome_of(daemon) == outcome_of(jitted), daemon
    if "raised" not in direct and "raised" not in jitted:
        assert daemon[1] == direct[1]
        np.testing.assert_allclose(daemon[2], direct[2], rtol=1e-5, atol=1e-5)


def outcome_of(found):
    """A value, or the type of what was raised."""
    return found.get("raised", found) if isinstance(found, dict) else found
