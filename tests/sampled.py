"""Samples of the tests, which CI runs; scripts/test_everything runs all."""

import zlib
from collections.abc import Sequence
from typing import Any

import pytest

IN_EACH_PART = ("tests/right_answers/", "tests/planted/", "tests/end_to_end/edits/")
"""Folders whose tests each part has: they are about wrong values, and share what takes long."""


def sampled(rows: Sequence[Any], nth: int, first: int = 0) -> list[Any]:
    """The rows of a sweep as parameters of slow tests; all but each `nth`, from the `first` on, are thorough."""
    return [
        pytest.param(
            *(row if isinstance(row, tuple) else (row,)),
            marks=[pytest.mark.slow] if at % nth == first else [pytest.mark.slow, pytest.mark.thorough],
        )
        for at, row in enumerate(rows)
    ]


def is_in_part(test: str, part: str) -> bool:
    """Tell whether a test is in part K of N, given as K/N. All cases of a test are in one: they may share much work."""
    number, parts = map(int, part.split("/"))
    return test.startswith(IN_EACH_PART) or zlib.crc32(test.partition("[")[0].encode()) % parts == number
