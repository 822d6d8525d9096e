"""SIGKILL and SIGSTOP at random moments, under four clients.

The next good answer is the next value that the daemon computes: for each of those clients, and for a program that
starts when the daemon is back.
"""

import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.faults.result import Result
from benchmarks.faults.stage import client, ended, stage

CLIENTS = 4
_LONGEST_STOP = 3.0


def signals(folder: Path, rounds: int) -> Iterator[Result]:
    """The results of each signal, sent so often."""
    chance = random.Random(0)
    with stage(folder) as there:
        there.turn()
        for number in (signal.SIGKILL, signal.SIGSTOP):
            result = Result(f"{number.name} under {CLIENTS} clients")
            clients = [client(there, there.environment("client")) for _ in range(CLIENTS)]
            for each in clients:
                assert each.stdout is not None
                each.stdout.readline()  # its first answer, or its end
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
            for each in clients:
                told = ended(each)
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
