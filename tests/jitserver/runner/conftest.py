"""Programs in a directory of their own, with a daemon whose cache the commands can read."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jitclient.core.settings import Settings
from jitclient.session.handshake import ask
from jitclient.wire.introspection import Listed, Match
from jitclient.wire.messages import Verb
from jitserver import run_daemon


class Folder:
    """Folder of programs, and a daemon for them."""

    def __init__(self, path: Path, address: str, cache: Path, until: Callable[..., Any]) -> None:
        self.path = path
        self._address = address
        self._until = until
        self._started: list[subprocess.Popen[str]] = []
        self.variables = {
            **{name: value for name, value in os.environ.items() if not name.startswith("COV_")},
            "JITSERVER_ADDRESS": address,
            "JITSERVER_CACHE_DIR": str(cache),
            "PYTHONUNBUFFERED": "1",
        }

    def write(self, name: str, source: str) -> Path:
        """Save a file, as editors do that replace it."""
        path = self.path / name
        newer = path.with_suffix(".saving")
        newer.write_text(textwrap.dedent(source))
        newer.replace(path)
        return path

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a command without a controlling terminal; stdout has both of its streams."""
        process = subprocess.Popen(
            [sys.executable, "-m", "jitserver", *words],
            cwd=self.path,
            env=self.variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._started.append(process)
        return process

    def run(self, *words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command."""
        return subprocess.run(
            [sys.executable, "-m", "jitserver", *words],
            cwd=self.path,
            env={**self.variables, **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )

    def programs_on_disk(self, number: int) -> None:
        """Wait until the daemon has written its programs."""

        def are_written() -> bool:
            found = ask(Settings(address=self._address), Verb.ENTRIES, Match(""), Listed).found
            return len(found) == number and all(entry.disk_bytes for entry in found)

        self._until(are_written, "the programs on the disk")

    def close(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            # The test may have read its output to the end.
            if process.stdout is not None and not process.stdout.closed:
                process.communicate()


@pytest.fixture
def folder(short_path: Path, tmp_path: Path, until: Callable[..., Any]) -> Iterator[Folder]:
    address = f"unix:{short_path}/d.sock"
    paths = {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    with run_daemon(address, short_path / "cache", env=paths):
        made = Folder(tmp_path, address, short_path / "cache", until)
        try:
            yield made
        finally:
            made.close()
