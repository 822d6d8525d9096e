"""Packages that are installed here, under one helper: with each, and without, a run has the state of plain `python`.

`JITSERVER_TEST_PACKAGES` says how many are tried, or names them, with commas in between.
"""

import collections
import importlib.metadata
import os
from collections.abc import Iterator
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from .conftest import LOADED, SECONDS, environment

WANTED = os.environ.get("JITSERVER_TEST_PACKAGES", "6")

NOT_LIBRARIES = {"jitclient", "jitserver", "isympy", "docs", "examples", "tests", "pip"}
"""Top-level names that are programs or ours."""

LEARNING = """
import contextlib, importlib, os, sys
for name in {names!r}:
    with contextlib.suppress(BaseException), contextlib.redirect_stdout(None):
        importlib.import_module(name)
"""
"""Program that imports packages, those that cannot be imported here as far as it gets."""


def packages() -> list[str]:
    """Return the packages of the distributions here, those that the most others require first."""
    if not WANTED.isdigit():
        return WANTED.split(",")
    required = collections.Counter(
        canonicalize_name(Requirement(each).name)
        for found in importlib.metadata.distributions()
        for each in found.requires or ()
    )
    tops = importlib.metadata.packages_distributions()
    names = [top for top in tops if top.isidentifier() and not top.startswith("_") and top not in NOT_LIBRARIES]
    names.sort(key=lambda top: (-max(required[canonicalize_name(name)] for name in tops[top]), top))
    return names[: int(WANTED)]


@pytest.fixture(scope="module")
def walked(until: Any) -> Iterator[Any]:
    """An environment whose helper has imported the packages, as far as it may."""
    for made in environment(until, MPLBACKEND="agg"):
        made.warm()
        made.run(made.script(LEARNING.format(names=packages())))
        made.warm()
        assert made.run("--verbose", made.script(LOADED.format(names=packages()))).stdout != "[]\n"
        yield made


@pytest.mark.slow
@pytest.mark.timeout(20 * SECONDS)
@pytest.mark.parametrize("name", ["", *packages()])
def test_a_run_has_the_state_of_a_process_of_its_own(name: str, walked: Any) -> None:
    walked.compared_state(f"import {name}" if name else "")
