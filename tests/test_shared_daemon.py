"""The end of the daemon that most tests share: the test in which it ends fails, and later ones find another."""

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
import os, signal
import numpy as np
import jitclient
from tests.conftest import _shared

def test_that_ends_it(daemon):
    os.kill(_shared._process.pid, signal.SIGKILL)

def test_that_comes_later(daemon):
    assert float(jitclient.jit(lambda x: x + 1)(np.float32(1))) == 2
"""


@pytest.mark.slow
def test_the_test_in_which_it_ends_fails_and_later_ones_find_another(tmp_path: Path) -> None:
    file = tmp_path / "test_it.py"
    file.write_text(TESTS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n0", "-m", "", "-p", "tests.conftest", f"--rootdir={tmp_path}", file],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "2 passed, 1 error" in done.stdout, done.stdout
    assert "ERROR at teardown of test_that_ends_it" in done.stdout
    assert "the shared daemon ended with status -9; it wrote:" in done.stdout
