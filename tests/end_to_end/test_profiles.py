"""Profiles of a training program in a fresh process, plain and on the daemon."""

from collections.abc import Callable
from typing import Any

import pytest

from .accelerator_programs import TRAINING


@pytest.mark.slow
@pytest.mark.usefixtures("daemon")
def test_a_training_program_has_the_same_operations(run_script: Callable[..., Any]) -> None:
    _, steps, plain = run_script(TRAINING, "plain")
    hosts, both, ours = run_script(TRAINING, "ours")
    assert hosts == 2
    [here] = {path for path, _ in plain}
    [there] = {path for path, _ in ours}  # none ran in the process
    assert there != here
    assert len(plain) > 5
    assert [name for _, name in ours] == [name for _, name in plain]
    assert steps == [[here, 0], [here, 1], [here, 2]]
    assert sorted(both) == sorted(steps + [[there, number] for number in range(3)])
