"""The cost of a call in functions called, on either side: no clock is needed to see that it grew."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

WORKER = Path(__file__).with_name("hot_path_worker.py")
CLIENT = Path(__file__).with_name("hot_path_client.py")
MOST = {
    "small": (10, 4, 2, 2),
    "resident": (8, None),
    "100 resident leaves": (112, None),
    # An average of 8.8 to 9.1 by how the calls fall into batches: one function more per call would exceed it. On the
    # daemon, one more where a Run comes in two reads.
    "pipelined": (9.5, 5),
    "moved in": (5, 0, 0, 0),
    "small, without a plan": (39, 4, 2, 2),
    "resident, without a plan": (29, None),
}
"""By the client; and where how calls fall into batches does not matter, by the daemon and on the socket of either.
Lower them when you can; who must raise one says why.
"""
MOST_WITHOUT_JAX = {"small": 14, "resident": 12}


@pytest.fixture(scope="module")
def counted() -> dict[str, list[float]]:
    with tempfile.TemporaryDirectory(prefix="js-") as folder:  # a socket's path must be short
        done = subprocess.run([sys.executable, str(WORKER), f"{folder}/d.sock"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: dict[str, list[float]] = json.loads(done.stdout)
    return found


READ_IN_PLACE = pytest.mark.cpu(reason="the daemon reads small results from the memory of the host")


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=READ_IN_PLACE if most[1] is not None else ()) for case, most in MOST.items()]
)
def test_a_call_takes_no_more_steps_than_before(case: str, counted: dict[str, list[float]]) -> None:
    for found, most in zip(counted[case], MOST[case], strict=False):
        assert most is None or 0 < found <= most or found == most == 0


@pytest.mark.parametrize("case", [case for case, most in MOST.items() if len(most) == 4])
def test_no_other_thread_takes_part(case: str, counted: dict[str, list[float]]) -> None:
    *_, by_others = counted[case]
    assert by_others == 0


@pytest.mark.usefixtures("daemon")
def test_nor_where_the_program_has_no_jax(run_script: Callable[..., Any]) -> None:
    found = run_script(CLIENT.read_text(), env={"JITSERVER_VERIFY": "off"})  # an own trace imports jax
    assert found.keys() == MOST_WITHOUT_JAX.keys()
    assert all(0 < found[case] <= most for case, most in MOST_WITHOUT_JAX.items()), found
