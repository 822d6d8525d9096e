"""SIGKILL and SIGSTOP at random moments, under four clients.

The next good answer is the next value that the daemon computes: for each of those clients, and for a program that
starts when the daemon is back.
"""

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
            for client in clients:
                assert client.stdout is not None
                client.stdout.readline()  # its first answer, or its end
            moments = list[tuple[float, float]]()  # of a signal, and of the end of what it did
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
                moments.append((begun, time.monotonic()))
                down, told = time.monotonic() - begun, there.turn()
                good = told.get("first") or told["good"]
                result.add(f"{number.name} {count}", {**told, "good": good and down + good})
            for client in clients:
                told = _ended(client)
                result.add("a client", {"steps": {"calls": told["worst"]}, "good": None}, failed=False)
                for count, (begun, over) in enumerate(moments):
                    good = next((at for at in told["answers"] if at > over), None)
                    if good is not None:
                        result.good.append(good - begun)
                    elif count < rounds - 1:  # after the last one, they are told to end
                        result.add(
                            f"{number.name} {count}", {"steps": {"a client": "hang"}, "good": None}, failed=False
                        )
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


def _ended(client: "subprocess.Popen[str]") -> dict[str, Any]:
    """Ask a client to end, and return its last answer."""
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
