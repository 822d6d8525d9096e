"""Costs of tests: the time of their fixtures, and the processes that they start."""

import collections
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest


class Spent:
    """A plugin of pytest that adds to each test how long its fixtures took, and how many processes it started."""

    def __init__(self) -> None:
        self._fixtures: collections.Counter[str] = collections.Counter()
        self._processes = 0
        sys.addaudithook(self._count)

    def _count(self, event: str, _: tuple[Any, ...]) -> None:
        self._processes += event == "subprocess.Popen"

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
        """Measure the setup of a fixture, without that of the fixtures that it names."""
        start = time.perf_counter()
        try:
            return (yield)
        finally:
            self._fixtures[fixturedef.argname] += time.perf_counter() - start

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Iterator[None]:
        """Add the figures when a test ends, so that its last report has them."""
        try:
            return (yield)
        finally:
            item.user_properties += [("fixtures", dict(self._fixtures)), ("processes", {"processes": self._processes})]
            self._fixtures.clear()
            self._processes = 0
