"""A package that looks for the variables of a prefix is not taken for one that asks for all variables."""

import subprocess
import sys

import pytest


def test_a_package_that_looks_for_a_prefix_can_be_imported_in_advance() -> None:
    pytest.importorskip("tqdm")
    source = (
        "from jitserver.run.environment_log import EnvironmentLog\n"
        "with EnvironmentLog() as log: import tqdm\n"
        "print(log.has_iterated)"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
