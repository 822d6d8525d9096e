"""Packages that are installed here, under one helper: a run has the state of plain `python`, with each and without it.

`JITSERVER_TEST_PACKAGES` says how many are tried.
"""

import collections
import importlib.metadata
import os
from collections.abc import Iterator
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from .conftest import SECONDS, environment, learnt, unfit
from .test_state_of_runs import PROBE

MANY = int(os.environ.get("JITSERVER_TEST_PACKAGES", "6"))

NOT_LIBRARIES = {"jitclient", "jitserver", "isympy", "docs", "examples", "tests", "pip"}
"""Top-level names that are programs or ours."""


def packages() -> list[str]:
    """Return the packages of the distributions here, those that the most others require first."""
    required = collections.Counter(
        canonicalize_name(Requirement(each).name)
        for found in importlib.metadata.distributions()
        for each in found.requires or ()
    )
    tops = importlib.metadata.packages_distributions()
    names = [top for top in tops if top.isidentifier() and not top.startswith("_") and top not in NOT_LIBRARIES]
    return sorted(names, key=lambda top: (-max(required[canonicalize_name(name)] for name in tops[top]), top))


@pytest.fixture(scope="module")
def walked(until: Any) -> Iterator[Any]:
    """An environment whose helper has imported the packages, as far as it may."""
    for made in environment(until, MPLBACKEND="agg"):
        made.warm()
        names = packages()[:MANY]
        for name in names:
            made.run(made.script(f"import {name}"))
        known = set()

        def is_settled(made: Any = made, known: set[str] = known) -> bool:
            before = {*known}
            known.clear()
            known.update(learnt(made), unfit(made))
            return made.run("--verbose", made.script("pass")).stderr == "" and before == known

        until(is_settled, "a helper with all packages", max(SECONDS, 15 * MANY))
        yield made


@pytest.mark.slow
@pytest.mark.timeout(20 * SECONDS)
@pytest.mark.parametrize("name", packages()[:MANY])
def test_a_run_has_the_state_of_a_process_of_its_own(name: str, walked: Any) -> None:
    for source in (PROBE, f"import {name}\n{PROBE}"):
        walked.compared(walked.script(source))
