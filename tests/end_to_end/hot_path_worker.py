"""Client and daemon in one process, which counts what each calls: `python hot_path_worker.py SOCKET` prints
{case: [by the client's thread, by the daemon's, on the socket of either, by any other thread]}, functions in Python and
methods of sockets per call of a jitted function. Medians: how often a batch is sent, or a clock is due, depends on how
busy the machine is.
"""

import collections
import itertools
import json
import os
import socket
import statistics
import sys
import threading
from pathlib import Path
from typing import Any

os.environ.update(JITSERVER_ADDRESS=f"unix:{sys.argv[1]}", JITSERVER_AUTOSTART="0", JITSERVER_FALLBACK="error")

import jax
import numpy as np

import jitclient
from jitclient.calls import general_path, moved_in
from jitclient.session import process
from jitclient.wire.address import Address
from jitserver.daemon import runs
from jitserver.daemon.listener import Listener
from jitserver.daemon.service import JitService
from jitserver.programs.counters import Counters
from jitserver.programs.engine import Engine
from jitserver.store.disk import Store
from jitserver.store.memory import MemoryTier
from jitserver.store.tiers import Tiers
from jitserver.store.write_behind import Writer
from jitserver.system.shared_memory import BlockPool

CALLS = 64
moved_in._FIRST_CALLS = 10**9  # programs stay on the daemon, as on an accelerator
FOLDERS = (str(Path(jitclient.__file__).parent), str(Path(runs.__file__).parents[1]))
NAMES = ("MainThread", "connection", "MainThread's socket", "connection's socket", OTHERS := "other threads")
counts: collections.Counter[str] = collections.Counter()
counted = False


def count(frame: Any, event: str, called: Any) -> None:
    if not counted:
        return
    if event == "call" and frame.f_code.co_filename.startswith(FOLDERS):
        name = threading.current_thread().name
        counts[name if name in NAMES else OTHERS] += 1
    elif event == "c_call" and isinstance(getattr(called, "__self__", None), socket.socket):
        counts[f"{threading.current_thread().name}'s socket"] += 1


def measured(call: Any) -> list[float]:
    global counted
    for _ in range(CALLS):
        call()
    after = []
    with process.session():  # held, so that nothing happens meanwhile
        counts.clear()
        counted = True
        for _ in range(CALLS):
            after.append(counts.copy())
            call()
        after.append(counts.copy())
        counted = False
    return [statistics.median(b[name] - a[name] for a, b in itertools.pairwise(after)) for name in NAMES]


def measured_in_batches() -> list[float]:
    """Means: per call by the client, per Run by the daemon."""
    global counted
    with process.session() as session:
        np.asarray(one[0])
        before = session._pipeline.outbox.number
        counts.clear()
        counted = True
        for _ in range(CALLS):
            chain(one)
        by_client = counts["MainThread"]
        np.asarray(one[0])
        counted = False
    return [by_client / CALLS, counts["connection"] // (session._pipeline.outbox.number - before)]


class Counted(Listener):
    """A listener whose connections are counted by name."""

    def _serve(self, sock: socket.socket, pid: int) -> None:
        threading.current_thread().name = "connection"
        sys.setprofile(count)
        super()._serve(sock, pid)


counters = Counters()
engine = Engine(counters, Tiers(MemoryTier(1 << 40, 1 << 20), Store(Path(), 0), Writer(lambda: 0)))
service = JitService(engine, counters, BlockPool(0), stop=lambda: None, restart=lambda reason: None)
listener = Counted(service, service.sessions, Address(Path(sys.argv[1])).listen(), service.pool)
threading.setprofile(count)
listener.start()
sys.setprofile(count)

small = jitclient.jit(lambda x, y, z: x + y + z)
step = jitclient.jit(lambda tree: jax.tree.map(lambda x: x * 0.5, tree))
x = np.ones((8, 8), np.float32)
one = [jitclient.device_put(x)]
there = jitclient.device_put(x)
many = [jitclient.device_put([x] * 100)]


def chain(tree: list[Any]) -> None:
    tree[0] = step(tree[0])


found = {
    "small": measured(lambda: np.asarray(small(x, x, x))),
    "resident": measured(lambda: chain(one)),
    "pipelined": measured_in_batches(),
    "100 resident leaves": measured(lambda: chain(many)),
}
moved_in._FIRST_CALLS, moved_in._BYTES_PER_CALL = 1, 1 << 30
last = jitclient.jit(lambda x, y: (x * y).sum())
of_jax = jax.numpy.ones((8, 8))
last(of_jax, x)
moved_in._wait()
found["moved in"] = measured(lambda: float(last(of_jax, x)))
moved_in._FIRST_CALLS = 10**9
general_path.renewed = lambda plans, *_: plans  # no more of them
other = jitclient.jit(lambda x, y, z: x * y * z)
found["small, without a plan"] = measured(lambda: np.asarray(other(x, x, x)))
found["resident, without a plan"] = measured(lambda: other(there, there, there))
sys.setprofile(None)
threading.setprofile(None)
process.session().close()
listener.close()
print(json.dumps(found))
