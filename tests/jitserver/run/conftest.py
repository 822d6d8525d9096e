"""A user's environment in which commands find a helper."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ...prepared import prepared
from . import state_probe

SECONDS = 200

STATE_PROBE = Path(state_probe.__file__).read_text()
"""Program that prints its whole state."""


LOADED = """
import sys
hidden = [name for each in sys.meta_path if type(each).__name__ == "Preloaded" for name in {names!r} if name in each]
print(hidden)
"""
"""Program that prints which modules its helper has imported; it must not import them."""


class Environment:
    """Folders, variables, and what runs in them."""

    def __init__(self, folder: Path, until: Callable[..., Any], **variables: str) -> None:
        self.folder = folder
        self.variables = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("COV_", "PYTHONHASHSEED"))},
            "XDG_RUNTIME_DIR": str(folder),
            "JITSERVER_CACHE_DIR": str(folder / "cache"),
            "JITSERVER_ADDRESS": f"unix:{folder}/d.sock",
            **variables,
        }
        self._until = until
        self._started: list[subprocess.Popen[str]] = []

    def arguments(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "jitserver", "run", *words]

    def run(self, *words: str, env: dict[str, str] | None = None, **options: Any) -> subprocess.CompletedProcess[str]:
        return self.end(self.start(*words, env=env, **options), options.get("input", ""))

    def start(
        self, *words: str, env: dict[str, str] | None = None, before: str = "", **options: Any
    ) -> subprocess.Popen[str]:
        """Starts a run, in a process that lines of Python may prepare."""
        options.pop("input", None)
        command = self.arguments(*words)
        process = self._popen(prepared(before, *command) if before else command, env, **options)
        self._started.append(process)
        return process

    def _popen(self, command: list[str], env: dict[str, str] | None, **options: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command,
            **{
                **dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE),
                "env": {**self.variables, **(env or {})},
                "cwd": self.folder,
                "text": True,
                **options,
            },
        )

    def plain(
        self, *words: str, env: dict[str, str] | None = None, before: str = "", **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Runs the same under plain `python`."""
        given = options.pop("input", "")
        command = [sys.executable, *words]
        return self.end(self._popen(prepared(before, *command) if before else command, env, **options), given)

    def compared(self, script: str) -> list[str]:
        """Checks that a run has the output and status of plain `python`; returns the lines that a run has added."""
        expected, done = self.plain(script), self.run("--verbose", script)
        lines = done.stderr.splitlines(keepends=True)
        added = [line for line in lines if line.startswith("jitserver: ")]
        assert done.stdout.splitlines() == expected.stdout.splitlines(), added
        assert "".join(line for line in lines if line not in added) == expected.stderr, added
        assert done.returncode == expected.returncode
        return added

    def compared_state(self, source: str) -> list[str]:
        """Checks that a run of a program has the output, the status and the whole state at its end of plain `python`.

        Returns the lines that the run has added.
        """
        script = self.script(f"{source}\n{STATE_PROBE}")
        expected, done = self.plain(script), self.run("--verbose", script)
        ours, added = done.stderr.splitlines(keepends=True), []
        for line in [line for line in ours if line.startswith("jitserver: ")]:
            ours.remove(line)
            added.append(line)
        states = [json.loads(each.stdout.splitlines()[-1]) for each in (expected, done)]
        assert state_probe.differences(*states) == []
        assert done.stdout.splitlines()[:-1] == expected.stdout.splitlines()[:-1]
        assert "".join(ours) == expected.stderr
        assert done.returncode == expected.returncode
        return added

    @staticmethod
    def end(process: subprocess.Popen[str], given: str = "") -> subprocess.CompletedProcess[str]:
        try:
            out, err = process.communicate(given, timeout=SECONDS)
        except BaseException:
            process.kill()
            raise
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def script(self, source: str, name: str = "script.py") -> str:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(source))
        return str(path)

    def warm(self, env: dict[str, str] | None = None) -> None:
        """Has a helper ready that knows all that was learnt."""
        script = self.script("pass", "warming.py")

        def is_ready() -> bool:
            # By the end of this run, the helper has started an audit of all that runs before have imported.
            return not self.run("--verbose", script, env=env).stderr and not self._processes(rb"jitserver\.run\.audit")

        self._until(is_ready, "a helper that no audit is for", SECONDS)

    def warm_terminal(self) -> None:
        """Has another helper ready, for runs whose output is a terminal."""
        script = self.script("pass", "warming.py")
        outer, inner = os.openpty()
        try:
            self._until(lambda: not self.run("--verbose", script, stdout=inner).stderr, "a helper", SECONDS)
        finally:
            os.close(outer)
            os.close(inner)

    def helpers(self) -> list[int]:
        return [int(words[0]) for path in self.locks() if (words := path.read_text().split())]

    def locks(self) -> list[Path]:
        return list((self.folder / "jitserver").glob("run-*.lock"))

    @staticmethod
    def state(pid: int) -> str:
        """As `ps` shows it."""
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return "X"

    def is_alive(self, pid: int) -> bool:
        return self.state(pid) not in "ZX"

    def close(self) -> None:
        for process in self._started:
            process.kill()
            process.communicate()
        self._until(self._are_ended, "the helpers' end")

    def _processes(self, words: bytes) -> list[int]:
        """The processes of this environment with some words, helpers included that have not told that they run."""
        found = []
        for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
            with contextlib.suppress(OSError):
                command = Path(f"/proc/{pid}/cmdline").read_bytes()
                found += [pid] if re.search(words, command) and os.fsencode(self.folder) in command else []
        return found

    def _are_ended(self) -> bool:
        helpers = self._processes(rb"jitserver\.run\.(helper|audit)")
        for pid in helpers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        return not any(map(self.is_alive, helpers))


def environment(until: Callable[..., Any], **variables: str) -> Iterator[Environment]:
    with tempfile.TemporaryDirectory(prefix="js-") as folder:
        made = Environment(Path(folder), until, **variables)
        try:
            yield made
        finally:
            made.close()


@pytest.fixture(scope="module")
def warm(until: Any) -> Iterator[Environment]:
    """An environment with a helper."""
    for made in environment(until):
        made.warm()
        yield made


@pytest.fixture
def cold(until: Any) -> Iterator[Environment]:
    """An environment in which nothing ran yet."""
    yield from environment(until)


@pytest.fixture
def site(cold: Any) -> Path:
    """A folder of installed packages."""
    folder = cold.folder / "lib" / "site-packages"
    folder.mkdir(parents=True)
    cold.variables["PYTHONPATH"] = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    return folder


def install(site: Path, name: str, source: str) -> None:
    (site / f"{name}.py").write_text(textwrap.dedent(source))


def learn(cold: Any, until: Any, *names: str) -> None:
    """Has a helper that has imported what a script imported, as far as it may."""
    cold.warm()
    cold.run(cold.script(f"import {', '.join(names)}"))
    until(lambda: not {*names} - {*learnt(cold)}, "the run to be noted")
    probe = cold.script(LOADED.format(names=names), "probe.py")

    def is_settled() -> bool:
        known = {*unfit(cold)}  # noted before the run: what has answered it has begun again without them
        done = cold.run("--verbose", probe)
        return not done.stderr and {*eval(done.stdout)} | known >= {*names}

    until(is_settled, "the helper to import them", SECONDS)


def learnt(cold: Any) -> Any:
    return content(cold).get("modules", [])


def unfit(cold: Any) -> Any:
    """The modules that are left to the runs for a reason of their own."""
    found = [json.loads(path.read_text())["unfit"] for path in (cold.folder / "cache").glob("*/verdict-*.json")]
    return {name: why for each in found for name, why in each.items() if "is left to the runs" not in why}


def content(cold: Any) -> Any:
    (path,) = (cold.folder / "cache").glob("*/imports.json")
    return json.loads(path.read_text())
