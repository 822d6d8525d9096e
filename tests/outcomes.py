"""A record of the outcomes of tests and of the time they took, for `scripts/run_stages.py` and `scripts/test_times`.

JITSERVER_TEST_OUTCOMES names a file for it. The file has one line of JSON for each of these: the setup, body and
teardown of a test, with its output if it failed, what could not be collected, and the end of the session.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest


def record_outcomes(config: pytest.Config) -> None:
    """Keep the record if a file is named for it.

    The name is taken out of the environment, so that no worker writes there too, nor a pytest that a test starts.
    """
    path = os.environ.pop("JITSERVER_TEST_OUTCOMES", None)
    if path is not None:
        config.pluginmanager.register(Record(Path(path)))


class Record:
    """A plugin of pytest that writes the outcomes of tests to a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write down how a step of a test ended, and what crashed its process."""
        output = output_of(report) if report.failed else ""
        self._write(report.nodeid, report.when, report.outcome, output, report.duration, dict(report.user_properties))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Write down that a file or a folder could not be read for tests."""
        if report.failed:
            self._write(report.nodeid, "collect", "failed", output_of(report))

    def pytest_sessionfinish(self) -> None:
        """Write down that nothing is missing above."""
        self._write("", "finish", "passed")

    def _write(
        self, test: str, when: str | None, outcome: str, output: str = "", seconds: float = 0.0, spent: Any = None
    ) -> None:
        found = {"test": test, "when": when, "outcome": outcome, "output": output, "seconds": round(seconds, 3)}
        line = json.dumps({**found, "spent": spent if when == "teardown" else None})
        with self._path.open("a") as file:
            file.write(f"{line}\n")


def output_of(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Return what pytest shows of a failure: the traceback and what was printed and logged."""
    return "\n".join([report.longreprtext, *(f"----- {title} -----\n{text}" for title, text in report.sections)])
