"""Random programs under random edits: the daemon answers what plain `jax.jit` answers, and knows again what it knew.

After every edit the program runs twice, each time in a fresh process: through the daemon, and through `jax.jit`. The
two answers are equal bit for bit. Where the edit changes nothing that matters, or goes back to an earlier program, the
daemon traces nothing.

JITSERVER_TEST_EDITS=2000 sets about how many edits there are (60), JITSERVER_TEST_SEED=7 which ones (in the long mode
they differ from run to run). What fails is shrunk, and printed.
"""

import itertools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from jitclient.core.settings import Settings
from jitclient.session.handshake import ask
from jitclient.wire.introspection import Status
from jitclient.wire.messages import Verb

HERE = Path(__file__).parent
BOUNDED = 60
EDITS = int(os.environ.get("JITSERVER_TEST_EDITS", BOUNDED))
SEED = os.environ.get("JITSERVER_TEST_SEED")
STEPS = 20  # of one program


class Worker:
    """A process that forks one for each program."""

    def __init__(self, *flags, seed):
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(HERE / "worker.py"), *flags],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def send(self, **request):
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()

    def answer(self):
        return json.loads(self._process.stdout.readline())

    def end(self):
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()


class World:
    """The daemon, the workers, and the folders in which programs are written."""

    def __init__(self, address, base):
        self._address = address
        self._base = base
        self._clients = [Worker(seed=1), Worker("--with-jax", seed=2)]
        self._plain = Worker("--with-jax", seed=3)
        self._numbers = itertools.count()
        self.edits = self.hits = 0

    def salt(self):
        """Return a salt that makes each program new to the daemon, also when a failure is tried again."""
        return f"{os.getpid()}.{next(self._numbers)}"

    def traces(self):
        return ask(Settings(address=self._address), Verb.STATUS, None, Status).traces

    def run(self, files, style):
        """The daemon's answer, the answer of `jax.jit`, and how often the daemon traced."""
        number = next(self._numbers)
        folder = self._base / f"{number}{'/deeper/down' * (style.folder % 2)}"
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        before = self.traces()
        client = self._clients[style.worker % 2]
        where = {"folder": str(folder), "as_main": bool(style.as_main % 2)}
        client.send(jitted_by="jitclient", run_first=bool(style.run_first % 2), **where)
        self._plain.send(jitted_by="jax", run_first=False, **where)
        found, expected = client.answer(), self._plain.answer()
        shutil.rmtree(self._base / str(number))
        return found, expected, self.traces() - before

    def end(self):
        for worker in (*self._clients, self._plain):
            worker.end()


@pytest.fixture
def world(daemon, tmp_path):
    made = World(daemon, tmp_path)
    yield made
    made.end()


@pytest.mark.slow
@pytest.mark.timeout(600 + 3 * EDITS)
def test_never_stale_and_never_needlessly_cold(world, capsys):
    # Where it is loaded, each collection reads all of our modules for constants.
    import hypothesis
    from hypothesis.stateful import run_state_machine_as_test

    from .machine import Edits

    settings = hypothesis.settings(
        max_examples=2 * EDITS // STEPS,  # about every other step changes something
        stateful_step_count=STEPS,
        derandomize=EDITS == BOUNDED and SEED is None,
        database=None,
        deadline=None,
        print_blob=True,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=(hypothesis.Phase.generate, *([] if EDITS == BOUNDED else [hypothesis.Phase.shrink])),
    )

    def machine():
        return Edits(world)

    if SEED is not None:
        machine = hypothesis.seed(int(SEED))(machine)
    run_state_machine_as_test(machine, settings=settings)
    with capsys.disabled():
        print(f" [{world.edits} edits survived, {world.hits} of them known to the daemon]", end="")
    assert world.edits > EDITS // 2
    assert world.hits > EDITS // 8
