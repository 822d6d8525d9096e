"""Tables of tests of which the core takes one column for each row."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest


def rotating(columns: Mapping[str, Sequence[Any]]) -> list[Any]:
    """Parameters (row, column) for all the columns of each row; one of them is in the core, the others are slow.

    Which one it is moves on from block to block of rows, so that the core meets every row and every column. Neighbours
    have much in common, and share what is made for their column.
    """
    return [
        pytest.param(row, column, marks=() if n * len(mine) // len(columns) == at else pytest.mark.slow)
        for n, (row, mine) in enumerate(columns.items())
        for at, column in enumerate(mine)
    ]
