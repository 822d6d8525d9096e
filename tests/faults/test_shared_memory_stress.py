"""Many clients, random sizes, late drops, forks and kills: no byte is ever read that was written for another client.

Each array is full of one number, so that a single look tells whether anything was written over it. A second test breaks
the rules of ownership, one at a time, and expects to see the first one fail.
"""

import random
import signal
import time
from typing import Any

import pytest

pytestmark = pytest.mark.slow

CLIENT = """
    import random
    from jitclient.session.blocks import Blocks

    seed, steps, forks = SEED, STEPS, FORKS
    BREAK
    rng = random.Random(seed)
    plus_one = jitclient.jit(lambda x: x + 1)
    in_place = jitclient.jit(lambda x: x + 1, donate_argnums=0)
    split = jitclient.jit(lambda x: (x, x[::2] * 2))
    sizes = [20_000, 50_000, 90_000, 200_000, 350_000]
    held, resident, children, looking = [], [], [], []
    print("begun", flush=True)

    def wrong(array, value):
        return not (array.min() == array.max() == value)

    def check(array, value):
        if wrong(array, value):
            print("corrupt")
            os._exit(1)

    def look_in_child():
        told, tells = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(tells)
            os.read(told, 1)  # until the parent has gone on for a while, or has ended
            os._exit(any(wrong(array, value) for array, value in held))
        os.close(told)
        children.append(pid)
        looking.append((step + 60, tells))

    for step in range(steps):
        value = float(seed * 10_000 + 2 * step)
        array = np.full(rng.choice(sizes), value, np.float32)
        what = rng.random()
        if what < 0.35:
            result = np.asarray(plus_one(array))
            array[:] = -1
            held.append((result if rng.random() < 0.5 else result[rng.randrange(100)::3], value + 1))
        elif what < 0.45:
            one, two = split(array)
            held += [(np.asarray(two), 2 * value), (np.asarray(one), value)]
        elif what < 0.55:
            resident.append((jitclient.device_put(array), value))
        elif what < 0.65 and resident:
            handle, old = resident.pop(rng.randrange(len(resident)))
            resident.append((in_place(handle), old + 1))
        elif what < 0.7 and resident:
            handle, old = resident.pop(rng.randrange(len(resident)))
            held.append((np.asarray(handle), old))
        elif what < 0.9 and held:
            check(*held.pop(rng.randrange(len(held))))
        elif what < 0.94 and len(children) < forks:
            look_in_child()
            del held[: len(held) // 2]  # whose children still read them
        elif what < 0.96:
            jitclient.session.process.session().disconnect()
        for array, value in held[-40:]:
            check(array, value)
        del held[:-40], resident[:-20], array
        while looking and looking[0][0] <= step:
            os.write(looking.pop(0)[1], b".")
    for array, value in held:
        check(array, value)
    for handle, value in resident:
        check(np.asarray(handle), value)
    for _, tells in looking:
        os.write(tells, b".")
    if any(os.waitpid(pid, 0)[1] for pid in children):
        print("corrupt")
        os._exit(1)
    print("right")
"""

BROKEN = {
    "what the program reads is written": """
    settle = Blocks._settle
    def broken(self):
        for number, (block, _) in list(self._read.items()):
            del self._read[number]
            self._add_free(block)
    Blocks._settle = broken
    """,
    "what children read is written": "Blocks.retire_read = lambda self: None",
    "what the program reads is given back": """
    tidy = Blocks.tidy
    def broken(self, now=None):
        self._free += [block for block, _ in self._read.values()]
        self._read.clear()
        return tidy(self, float("inf"))
    Blocks.tidy = broken
    reclaim = Blocks.reclaim
    Blocks.reclaim = lambda self, *rest: (reclaim(self, *rest), broken(self))[0]
    """,
}


def program(seed: int, steps: int, forks: int = 6, broken: str = "") -> str:
    fillings = {"SEED": seed, "STEPS": steps, "FORKS": forks, "BREAK": broken.strip()}
    source = CLIENT
    for name, value in fillings.items():
        source = source.replace(name, str(value))
    return source


def test_no_block_is_written_while_somebody_can_read_it(unharmed: Any, start_client: Any, until: Any) -> None:
    rng = random.Random(7)
    lasting = [start_client(unharmed, program(seed, 150)) for seed in (1, 2)]
    for seed in (3, 4, 5):  # neighbours that do not end well
        victim = start_client(unharmed, program(seed, 100_000, forks=3))
        victim.says("begun")
        time.sleep(rng.uniform(0.5, 2.0))
        victim.kill(rng.choice([signal.SIGKILL, signal.SIGTERM]))
    for client in lasting:
        client.says("begun")
        client.says("right")
        client.ends()
    until(lambda: unharmed.counts().lent_bytes == 0, "all memory to come back")


@pytest.mark.slow
@pytest.mark.parametrize("rule", BROKEN)
def test_a_rule_that_is_broken_is_noticed(serve: Any, start_client: Any, rule: str) -> None:
    with serve() as daemon:
        for seed in range(1, 4):  # chance may spare one
            client = start_client(daemon, program(seed, 150, broken=BROKEN[rule]))
            client.says("begun")
            if client.process.stdout.readline().strip() == "corrupt":
                return
    raise AssertionError("nothing was noticed")
