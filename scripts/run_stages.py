#!/usr/bin/env python3
"""Run stages of tests, and each test that fails once more, alone, when all else is done.

A test that passes alone is unsteady: the run is green, and lists the test with the output of its failure. The run is
red if a test fails alone too, if more than five fail, or if anything but a test goes wrong in a stage; it ends there,
as soon as that is known.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

MOST_FAILURES = 5
_WHY_LINES = 4
_RECORDS = os.environ.pop("JITSERVER_TEST_RECORDS", "")
"""Folder for the records of all stages. No test sees the variable: one that runs this script would write there, too."""
TESTS_FAILED = 1  # the exit status with which pytest says that all went well but tests


@dataclass(frozen=True)
class Outcome:
    """A line of the record that `tests/outcomes.py` keeps."""

    test: str
    when: str  # setup, call, teardown, collect, finish, or what xdist says of a test whose process crashed
    outcome: str
    output: str
    seconds: float = 0.0
    spent: dict[str, dict[str, float]] | None = None


@dataclass(frozen=True)
class Run:
    """Outcome of a command that runs pytest."""

    status: int
    outcomes: tuple[Outcome, ...]

    @property
    def failures(self) -> dict[str, str]:
        """Return the output of each test that failed."""
        failed: dict[str, list[str]] = {}
        for found in self.outcomes:
            if found.outcome == "failed":
                failed.setdefault(found.test, []).append(found.output)
        return {test: "\n".join(outputs) for test, outputs in failed.items()}

    @property
    def passed(self) -> set[str]:
        """Return the tests that passed."""
        ran = {found.test for found in self.outcomes if found.when == "call" and found.outcome == "passed"}
        return ran - self.failures.keys()

    @property
    def trouble(self) -> str | None:
        """Return what went wrong beside tests, if anything did."""
        if self.status not in (0, TESTS_FAILED):
            return f"it ended with status {self.status}"
        if not any(found.when == "finish" for found in self.outcomes):
            return f"it ended with status {self.status} before pytest had finished"
        if any(found.when == "collect" for found in self.outcomes):
            return "not all tests could be collected"
        if (self.status == TESTS_FAILED) != bool(self.failures):
            return f"it ended with status {self.status}, and {len(self.failures)} tests failed"
        if not self.passed and not self.failures:
            return "no test ran"
        return None


@dataclass(frozen=True)
class Failure:
    """A test that failed in a stage, and the command that runs it alone once its name is added."""

    test: str
    output: str
    stage: str
    alone: str

    @property
    def why(self) -> list[str]:
        """Return the first lines of the exception, by the mark that pytest gives them."""
        return [line for line in self.output.splitlines() if line.startswith("E ")][:_WHY_LINES]


def run(*command: str) -> Run:
    """Run a command, which writes where this process does, and read what its pytest recorded."""
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "outcomes"
        record.touch()
        sys.stdout.flush()
        status = subprocess.call(command, env={**os.environ, "JITSERVER_TEST_OUTCOMES": str(record)})
        print()  # a pytest that crashes leaves its line open
        if _RECORDS:
            number = len(os.listdir(_RECORDS))
            shutil.copy(record, Path(_RECORDS) / f"{number:02}-{command[-1][:60].replace('/', '_')}")
        return Run(status, tuple(Outcome(**json.loads(line)) for line in record.read_text().splitlines()))


def passes_alone(failure: Failure) -> bool:
    """Run a test once more and return whether it passed, which to be skipped is not."""
    print(f"== once more, alone: {failure.test}")
    again = run("bash", "-c", f'{failure.alone} "$@"', "bash", failure.test)
    return again.status == 0 and again.trouble is None


def conclude(began: float, passed: int, failed: Iterable[Failure], unsteady: Iterable[Failure], errors: int = 0) -> int:
    """List what is not as it should be, close as pytest does, and return the status to exit with."""
    failed, unsteady = list(failed), list(unsteady)
    for failure in unsteady:
        print(f"== the failure of {failure.test}, which passes alone\n{failure.output}")
    for word, failures in (("unsteady", unsteady), ("failed", failed)):
        for failure in failures:
            print(f"{word}: {failure.test} (in: {failure.stage})")
            print("".join(f"    {line}\n" for line in failure.why), end="")
    counts = {"failed": len(failed), "error": errors, "passed": passed, "unsteady": len(unsteady)}
    text = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    print(f" {text} in {time.monotonic() - began:.2f}s ".center(80, "="))
    return 1 if failed or errors else 0


def run_all(stages: Iterable[tuple[str, str]]) -> int:
    """Run the stages, then what failed once more, and return the status to exit with."""
    began = time.monotonic()
    failures: list[Failure] = []
    times: list[str] = []
    passed = 0
    for stage, alone in stages:
        print(f"== {stage}")
        start = time.monotonic()
        done = run("bash", "-c", stage)
        times.append(f"took {time.monotonic() - start:.0f} s: {stage}")
        passed += len(done.passed)
        failures += [Failure(test, output, stage, alone) for test, output in done.failures.items()]
        if done.trouble is not None:
            print(f"== red: {done.trouble}: {stage}")
            return conclude(began, passed, failures, [], errors=1)
        if len(failures) > MOST_FAILURES:
            print(f"== red: more than {MOST_FAILURES} tests failed")
            return conclude(began, passed, failures, [])
    unsteady = [failure for failure in failures if passes_alone(failure)]
    failed = [failure for failure in failures if failure not in unsteady]
    print(*times, sep="\n")
    return conclude(began, passed + len(unsteady), failed, unsteady)


def main() -> int:
    """Run the stages that the command line names."""
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # tests print what they like
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--stage",
        nargs=2,
        action="append",
        required=True,
        metavar=("COMMAND", "ALONE"),
        help="what bash runs: a command that ends with pytest, and one that runs a test whose name is added",
    )
    return run_all(parser.parse_args().stage)


if __name__ == "__main__":
    sys.exit(main())
