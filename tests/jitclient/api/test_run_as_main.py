"""A program does under `python -m jitclient` what it does under `python`, to the byte."""

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from ...sampled import sampled
from .programs import PLAIN_PYTHON, WITH_JAX, python

CORE = {"arguments", "error", "error_in_package", "interrupted"}
"""Rows that run with the core, since they cover most."""


def jitclient(flags: Sequence[str], program: Sequence[str]) -> list[str]:
    return [sys.executable, *flags, "-m", "jitclient", *program]


@pytest.mark.parametrize(
    "name",
    [
        *(pytest.param(name, marks=pytest.mark.core) for name in PLAIN_PYTHON if name in CORE),
        *sampled([name for name in PLAIN_PYTHON if name not in CORE], 3, first=2),
    ],
)
def test_a_program_does_what_it_does_under_python(name: str, tmp_path: Path) -> None:
    program = PLAIN_PYTHON[name]
    program.write(tmp_path)
    expected = program.run(tmp_path, python)
    assert program.run(tmp_path, jitclient) == expected


@pytest.mark.parametrize("name", sampled(list(WITH_JAX), 2, first=1))
def test_a_program_with_jax_does_what_it_does_under_python(name: str, daemon: str, tmp_path: Path) -> None:
    program = WITH_JAX[name]
    program.write(tmp_path)
    expected = program.run(tmp_path, python)
    assert program.run(tmp_path, jitclient) == expected
