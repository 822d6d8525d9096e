"""Plugin of pytest: a suite finds what JAX compiled in earlier runs, and in the other workers of pytest-xdist.

`pytest --jitserver`, or `jitserver = true` in pytest's configuration file, turns the plugin on; docs/testing.md is the
user's page.

The verdicts are those of plain JAX, because the suite runs plain JAX: `jax.jit` is JAX's own, arrays are JAX's own, and
no call leaves the process. Each process traces and lowers each function, since that runs code of the suite, and a test
may see any of its effects: counts of traces, warnings, log lines, assertions, calls of a mock, leaked tracers, lines
that a coverage tool counts. A compilation runs no code of the suite, so a later process may find it instead.

pytest imports this module in each environment with jitserver, so it imports nothing itself. Nor is it a part of
jitclient, whose import pins jax to the CPU.
"""

import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

_KEY = "jitserver"
"""Key of a worker's figures in what pytest-xdist sends to the controller."""

_MAX_TESTS = 10
"""Maximum number of tests that `--jitserver-report` lists."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options, and the line of the configuration file."""
    group = parser.getgroup("jitserver", "compilations that are kept between runs")
    group.addoption("--jitserver", action="store_true", help="find what JAX compiled in earlier runs")
    group.addoption(
        "--jitserver-cache", metavar="DIR", help="with --jitserver: the cache directory (default: JITSERVER_CACHE_DIR)"
    )
    group.addoption(
        "--jitserver-report", action="store_true", help="with --jitserver: list the tests that made compilations"
    )
    parser.addini("jitserver", "the same as the option --jitserver", type="bool", default=False)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Begin to find and keep compilations, if the user asks for it."""
    if config.getoption("jitserver") or config.getini("jitserver"):
        config.pluginmanager.register(_Suite(config), "jitserver-suite")


class _Suite:
    """Hooks of a process whose jax finds and keeps compilations."""

    def __init__(self, config: pytest.Config) -> None:
        self._figures: list[dict[str, Any]] = []
        self._tests: list[tuple[float, int, str]] = []
        self._before = (0, 0.0)
        self._why_off = ""
        if hasattr(config, "workerinput"):
            # Of several processes on an accelerator, the first would take three quarters of its memory.
            os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        try:
            _keep_compilations(config.getoption("jitserver_cache"))
        # No failure of ours is one of the suite.
        except Exception as error:
            self._why_off = str(error) or type(error).__name__

    def pytest_runtest_logstart(self) -> None:
        """Note what was made before a test."""
        self._before = _made()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Note what a test made."""
        times, took = (after - before for after, before in zip(_made(), self._before, strict=True))
        if times:
            self._tests = sorted([*self._tests, (took, int(times), nodeid)], reverse=True)[:_MAX_TESTS]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Send the figures of a worker to the controller."""
        sent = getattr(session.config, "workeroutput", None)
        if sent is not None:
            sent[_KEY] = self._own_figures()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Receive the figures of a worker; there are none of one that crashed."""
        self._figures.append(getattr(node, "workeroutput", {}).get(_KEY, {}))

    def pytest_terminal_summary(self, terminalreporter: Any, config: pytest.Config) -> None:
        """Print what the whole suite found and made: a line, or with `--jitserver-report` more of them."""
        wants_report = config.getoption("jitserver_report")
        if config.option.verbose < 0 and not wants_report:
            return
        if self._why_off:
            terminalreporter.write_line(f"jitserver: is off: {self._why_off}", yellow=True)
        else:
            for line in _lines([each for each in (*self._figures, self._own_figures()) if each], wants_report):
                terminalreporter.write_line(line)

    def _own_figures(self) -> dict[str, Any]:
        """Return the figures of this process, in types that pytest-xdist can send; none if jax was not used."""
        cache = _cache()
        if cache is None:
            return {}
        return {
            "found": (cache.found, cache.saved_seconds),
            "made": (cache.compiled, cache.compiled_seconds),
            "excluded": dict(cache.excluded),
            "tests": self._tests,
        }


def _keep_compilations(directory: str | None) -> None:
    """Make this process's jax find and keep compilations, immediately or once the suite imports it.

    Raises:
        Exception: the cache cannot be used.
    """
    is_used_by_suite = "jitclient" in sys.modules
    if directory:
        # For this process, and for those that it starts.
        os.environ["JITSERVER_CACHE_DIR"] = os.path.abspath(os.path.expanduser(directory))
    from jitclient.core.directories import environment_directory
    from jitclient.core.settings import settings
    from jitclient.jaxside import client_device, compilation_cache

    if not is_used_by_suite:
        client_device.defer()
    settings.cache_clear()
    if not settings().client_cache:
        raise RuntimeError("JITSERVER_CLIENT_CACHE=0")
    environment_directory()
    compilation_cache.keep_compilations()


def _cache() -> Any:
    """Return the cache that this process's jax uses; None if there is no jax, or none of ours."""
    return getattr(sys.modules.get("jitclient.jaxside.compilation_cache"), "own", lambda: None)()


def _made() -> tuple[int, float]:
    """Return the number and the seconds of the compilations that this process has made."""
    cache = _cache()
    return (0, 0.0) if cache is None else _total([(cache.compiled, cache.compiled_seconds), *cache.excluded.values()])


def _lines(figures: list[dict[str, Any]], wants_report: bool) -> Iterator[str]:
    """Yield the lines about all processes of a suite."""
    from jitclient.wire.labels import seconds

    found, saved = _total(each["found"] for each in figures)
    made, took = _total(each["made"] for each in figures)
    reasons = sorted({reason for each in figures for reason in each["excluded"]})
    excluded = {reason: _total(each["excluded"].get(reason, (0, 0.0)) for each in figures) for reason in reasons}
    others, others_took = _total(excluded.values())
    if not found + made + others:
        return
    parts = [f"{found:,} found ({seconds(max(0.0, saved))} saved)", f"{made:,} made ({seconds(took)})"]
    if others:
        parts.append(f"{others:,} made in each run ({seconds(others_took)})")
    number = found + made + others
    yield f"jitserver: {number:,} compilation{'' if number == 1 else 's'}: {', '.join(parts)}"
    if wants_report:
        for reason, (times, took) in excluded.items():
            yield f"  made in each run: {times:,} in {seconds(took)}, because {reason}"
        for took, times, test in sorted((each for one in figures for each in one["tests"]), reverse=True)[:_MAX_TESTS]:
            yield f"  made by a test: {times:,} in {seconds(took)}, {test}"


def _total(counts: Iterable[tuple[int, float]]) -> tuple[int, float]:
    """Return the sum of pairs of a number and seconds."""
    pairs = list(counts)
    return sum(times for times, _ in pairs), sum((took for _, took in pairs), 0.0)
