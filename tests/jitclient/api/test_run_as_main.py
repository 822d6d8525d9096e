"""A program does under `python -m jitclient` what it does under `python`, to the byte."""

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from .programs import PLAIN_PYTHON, WITH_JAX, python

CORE = {"arguments", "error", "error_in_package", "interrupted"}
"""Rows that run with the core, since they cover most."""


def jitclient(flags: Sequence[str], program: Sequence[str]) -> list[str]:
    return [sys.executable, *flags, "-m", "jitclient", *program]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.core if name in CORE else pytest.mark.slow) for name in PLAIN_PYTHON]
)
def test_a_program_does_what_it_does_under_python(name: str, tmp_path: Path) -> None:
    program = PLAIN_PYTHON[name]
    program.write(tmp_path)
    expected = program.run(tmp_path, python)
    assert program.run(tmp_path, jitclient) == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_JAX)
def test_a_program_with_jax_does_what_it_does_under_python(name: str, daemon: str, tmp_path: Path) -> None:
    program = WITH_JAX[name]
    program.write(tmp_path)
    expected = program.run(tmp_path, python)
    assert program.run(tmp_path, jitclient) == expected
