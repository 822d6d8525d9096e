"""SIGKILL and SIGSTOP at random moments, under four clients."""

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.faults.result import Result
from benchmarks.faults.stage import Stage, stage

CLIENTS = 4
_LONGEST_STOP = 3.0


def signals(folder: Path, rounds: int) -> Iterator[Result]:
    """The results of each signal, sent so often."""
    chance = random.Random(0)
    with stage(folder) as there:
        there.turn()
        for number in (signal.SIGKILL, signal.SIGSTOP):
            result = Result(f"{number.name} under {CLIENTS} clients")
            clients = [_client(there) for _ in range(CLIENTS)]
            for count in range(rounds):
                time.sleep(chance.uniform(0.0, 1.0))
                assert there.daemon is not None
                begun = time.monotonic()
                there.daemon.send_signal(number)
                if number == signal.SIGSTOP:
                    time.sleep(chance.uniform(0.0, _LONGEST_STOP))
                    there.daemon.send_signal(signal.SIGCONT)
                else:
                    there.daemon.wait()
                    there.serve()
                down, told = time.monotonic() - begun, there.turn()
                result.add(
                    f"{number.name} {count}", {**told, "good": down + (told.get("first") or told["good"] or 0.0)}
                )
            for client in clients:
                result.add("a client", {"steps": {"calls": _ended(client)}, "good": None}, failed=False)
            yield result


def _client(there: Stage) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "benchmarks.faults.client", "forever"]
    return subprocess.Popen(
        command,
        env=there.environment("client"),
        cwd=there.folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=(there.folder / "client.log").open("ab"),
        text=True,
    )


def _ended(client: "subprocess.Popen[str]") -> str:
    """How the calls of a client ended, which is told to end."""
    try:
        out, _ = client.communicate("end\n", 60)
    except subprocess.TimeoutExpired:
        client.kill()
        client.communicate()
        return "hang"
    return out.strip() or f"raw: the client died with status {client.returncode}"
