"""Sweeps over many rows: CI runs a sample of them, scripts/test_everything all."""

from collections.abc import Sequence
from typing import Any

import pytest


def sampled(rows: Sequence[Any], nth: int, first: int = 0) -> list[Any]:
    """The rows as parameters of slow tests, of which all but each `nth`, from the `first` on, are thorough."""
    return [
        pytest.param(
            *(row if isinstance(row, tuple) else (row,)),
            marks=[pytest.mark.slow] if at % nth == first else [pytest.mark.slow, pytest.mark.thorough],
        )
        for at, row in enumerate(rows)
    ]
