"""A daemon that is started again when it has ended, and a client, both under the control of the benchmark."""

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.faults.client import DEADLINE_SECONDS
from benchmarks.faults.shim import Control
from benchmarks.processes import TOP, end, environment
from benchmarks.rivals.ours import answers

# A start takes two seconds, and fifteen where six times as many processes want to run as there are cores.
_START_SECONDS = 120.0


class Stage:
    """The processes, in a folder of their own."""

    def __init__(self, folder: Path, library: Path | None = None, options: Sequence[str] = ()) -> None:
        self.folder, self.library, self.options = folder, library, options
        self.path = folder / "d.sock"
        self.controls = {who: Control(folder / f"{who}.control") for who in ("daemon", "client")}
        self.daemon: subprocess.Popen[bytes] | None = None
        self.deaths = 0
        self._client: subprocess.Popen[str] | None = None
        self._number = 0

    def environment(self, who: str) -> dict[str, str]:
        """Return the environment of a process of this stage."""
        paths = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(TOP)]))
        shim = self.controls[who].environment(self.library)
        more = {"JITSERVER_ADDRESS": f"unix:{self.path}", "JITSERVER_FALLBACK": "local", "JITSERVER_TIMEOUT": "10"}
        more["JITSERVER_VERIFY"] = "off"  # otherwise most calls that fail are those of the import of jax
        return environment(self.folder, PYTHONPATH=paths, **more, **shim)

    def serve(self) -> None:
        """Starts the daemon unless it runs.

        Raises:
            RuntimeError: it does not start.
        """
        if self.daemon is not None and self.daemon.poll() is None:
            return
        self.deaths += self.daemon is not None
        self.daemon = self._launched("jitserver")
        if self._began(self.daemon) is not True:
            raise RuntimeError(f"the daemon does not start:\n{(self.folder / 'log').read_text()[-2000:]}")

    def serve_failing(self, call: str, nth: int) -> bool:
        """Starts the daemon, which fails that call; returns whether it served, or ended, or else could be ended."""
        self.daemon = self._launched("benchmarks.faults.daemon", FAULTS_START=f"{call} {nth}")
        if self._began(self.daemon) is not None:
            return True
        self.stop()
        return False

    def _launched(self, module: str, **env: str) -> subprocess.Popen[bytes]:
        with open(self.folder / "log", "ab") as log:
            return subprocess.Popen(
                [sys.executable, "-P", "-m", module, "serve", "--address", f"unix:{self.path}", *self.options],
                env={**self.environment("daemon"), **env},
                cwd=self.folder,
                stdout=log,
                stderr=log,
            )

    def _began(self, daemon: subprocess.Popen[bytes]) -> bool | None:
        """Waits until the daemon serves; False if it ended instead, None if it did neither in time."""
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            if answers(self.path):
                return True
            if daemon.poll() is not None:
                return False
            time.sleep(0.02)
        return None

    def turn(self, call: str = "", nth: int = 0, number: int | None = None) -> dict[str, Any]:
        """Has a fork of the client do all that a client does, with that failure; see client.py.

        Its program is its own, unless `number` is that of an earlier turn.
        """
        if self._client is None or self._client.poll() is not None:
            self._client = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.faults.client"],
                env=self.environment("client"),
                cwd=self.folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=(self.folder / "client.log").open("ab"),
                text=True,
            )
        self._number += number is None
        assert self._client.stdin is not None
        assert self._client.stdout is not None
        self._client.stdin.write(json.dumps({"number": number or self._number, "call": call, "nth": nth}) + "\n")
        self._client.stdin.flush()
        while not select.select([self._client.stdout], [], [], 0.05)[0]:
            self.serve()  # as a supervisor would
        line = self._client.stdout.readline()
        if not line:
            raise RuntimeError(f"the client has died:\n{(self.folder / 'client.log').read_text()[-2000:]}")
        found: dict[str, Any] = json.loads(line)
        return found

    def stop(self) -> int | None:
        """Ends the daemon in order; returns its status, or None if it had to be killed."""
        assert self.daemon is not None
        self.daemon.terminate()
        try:
            return self.daemon.wait(DEADLINE_SECONDS)
        except subprocess.TimeoutExpired:
            self.daemon.kill()
            self.daemon.wait()
            return None
        finally:
            self.daemon = None

    def close(self) -> None:
        """Ends all processes."""
        for each in (self._client, self.daemon):
            if each is not None:
                end(each)


@contextlib.contextmanager
def stage(folder: Path, library: Path | None = None, options: Sequence[str] = ()) -> Iterator[Stage]:
    """A stage whose daemon runs, until the block ends."""
    made = Stage(folder, library, options)
    try:
        made.serve()
        yield made
    finally:
        made.close()


def client(there: Stage, env: dict[str, str]) -> "subprocess.Popen[str]":
    """Start a client that calls until it is asked to end; see `forever` in client.py."""
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.faults.client", "forever"],
        env=env,
        cwd=there.folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=(there.folder / "client.log").open("ab"),
        text=True,
    )


def ended(client: "subprocess.Popen[str]") -> dict[str, Any]:
    """Ask such a client to end, and return its last answer."""
    try:
        out, _ = client.communicate("end\n", 60)
    except subprocess.TimeoutExpired:
        client.kill()
        client.communicate()
        return {"worst": "hang", "answers": []}
    found: dict[str, Any] = json.loads(out or "null") or {
        "worst": f"raw: the client died with status {client.returncode}",
        "answers": [],
    }
    return found
