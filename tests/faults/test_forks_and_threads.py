"""A client with many threads, and the children that it forked: each gets right answers, and none harms another."""

import os
import subprocess
import sys
from typing import Any

import pytest

FORKS = """
    double = jitclient.jit(lambda x: x * 2)
    triple = jitclient.jit(lambda x: x * 3)
    inherited = double(np.ones((200, 200), np.float32))  # too large to come with the answer
    kept = double(np.full((200, 200), 2, np.float32))

    def again():  # calls for which there is a plan by then, at once and queued
        return [float(double(np.float32(n))) for n in range(4)] + [double(inherited) for _ in range(4)]

    again()

    def child():
        assert np.asarray(inherited)[0, 0] == 2
        *numbers, last = again()
        assert numbers[:4] == [0, 2, 4, 6] and np.asarray(last)[0, 0] == 4
        mine = [triple(np.full((200, 200), n, np.float32)) for n in range(5)]
        assert [np.asarray(m)[0, 0] for m in mine] == [0, 3, 6, 9, 12]
        mixed = triple(inherited)
        assert np.asarray(mixed)[0, 0] == 6
"""
OS_FORK = """
    ready, go = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            global_kept = kept
            del kept, global_kept  # before it has said a word to the daemon
            child()
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
        os._exit(0) if QUICK else sys.exit(0)
    for n in range(20):  # the parent calls meanwhile
        assert float(double(np.float32(n))) == 2 * n
    assert os.waitpid(pid, 0)[1] == 0
"""
AFTER = """
    assert np.asarray(kept)[1, 1] == 4
    assert float(double(np.float32(4))) == 8
    import gc
    gc.collect()
    print("done")
    sys.stdin.readline()
"""
MULTIPROCESSING = """
    import multiprocessing
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=child) for _ in range(3)]
    for one in children:
        one.start()
    for n in range(20):
        assert float(double(np.float32(n))) == 2 * n
    for one in children:
        one.join()
        assert one.exitcode == 0
"""


@pytest.mark.parametrize("how", [OS_FORK.replace("QUICK", "True"), OS_FORK.replace("QUICK", "False"), MULTIPROCESSING])
def test_forked_children_read_and_call_and_free_nothing_of_their_parent(
    unharmed: Any, start_client: Any, until: Any, how: str
) -> None:
    client = start_client(unharmed, FORKS + how + AFTER)
    client.says("done")
    until(lambda: unharmed.counts().arrays >= 2, "the parent's arrays")
    assert unharmed.counts().sessions == 1
    client.goes_on()
    client.ends()


def test_a_child_that_ends_while_its_parent_is_away_does_not_end_the_session(unharmed: Any, start_client: Any) -> None:
    source = (
        FORKS
        + """
    jitclient.session.process.session().disconnect()  # as after Ctrl-C
    pid = os.fork()
    if pid == 0:
        child()
        os._exit(0)
    os.waitpid(pid, 0)
    time.sleep(0.5)
    assert np.asarray(kept)[1, 1] == 4
    print("done")
"""
    )
    client = start_client(unharmed, source)
    client.says("done")
    client.ends()


def test_a_child_that_outlives_its_parent_finishes(unharmed: Any, start_client: Any, until: Any) -> None:
    source = (
        FORKS
        + """
    before, after = os.pipe()
    if os.fork() == 0:
        mine = triple(np.full((200, 200), 5, np.float32))
        os.write(after, b"x")
        sys.stdin.readline()
        assert np.asarray(mine)[0, 0] == 15
        print("outlived", flush=True)
        os._exit(0)
    os.read(before, 1)
"""
    )
    client = start_client(unharmed, source)
    until(lambda: client.process.poll() is not None, "the parent's end")
    assert unharmed.counts().sessions == 1
    client.goes_on()
    client.says("outlived")


def test_a_fork_catches_no_thread(unharmed: Any, start_client: Any) -> None:
    # From Python 3.12 on, os.fork warns of every one.
    source = """
    def threads():
        return len(os.listdir("/proc/self/task"))

    before = threads()  # numpy may have its own
    double = jitclient.jit(lambda x: x * 2)
    background = jitclient.connect().background
    background._quiet = 10**9  # it does not end by itself
    seen = []
    os.register_at_fork(after_in_parent=lambda: seen.append(background.awake))
    held = [double(jitclient.device_put(np.float32(n))) for n in range(3)]
    held.clear()  # calls may be queued, and handles are dropped
    assert background.awake and threads() > before
    if os.fork() == 0:
        os._exit(0)
    os.wait()
    assert seen == [False]
    while threads() > before:  # what has said that it ends takes a moment
        time.sleep(0.01)
    print("alone")
"""
    client = start_client(unharmed, source)
    client.says("alone")
    client.ends()


THREADS = """
    import gc

    functions = [jitclient.jit(eval(f"lambda x: x * {n} + 1")) for n in range(8)]
    wrong = []

    def work(n):
        for step in range(15):
            found = functions[n](np.full((150, 150), step, np.float32))
            ring = [found]
            ring.append(ring)  # only a garbage collection drops it
            if np.asarray(found)[3, 3] != step * n + 1:
                wrong.append((n, step))
            del found, ring
            gc.collect(0)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong
    gc.collect()
    print("done")
    sys.stdin.readline()
"""


def test_many_threads_call_and_drop_at_once(unharmed: Any, start_client: Any, until: Any) -> None:
    client = start_client(
        unharmed,
        THREADS.replace('eval(f"lambda x: x * {n} + 1")', "make(n)").replace(
            "    functions =", "    def make(n):\n        return lambda x: x * n + 1\n\n    functions ="
        ),
    )
    client.says("done")
    until(lambda: unharmed.counts().arrays == 0, "all arrays to be freed")
    client.goes_on()
    client.ends()


def test_handles_dropped_while_a_call_is_under_way_are_freed_after_it(
    unharmed: Any, start_client: Any, until: Any
) -> None:
    source = """
    @jitclient.jit
    def slow(x):
        import time
        time.sleep(1)
        return x

    held = jitclient.device_put([np.zeros(10, np.float32) for _ in range(6)])
    threading.Timer(0.4, held.clear).start()
    slow(np.float32(1))
    print("done")
    sys.stdin.readline()
"""
    client = start_client(unharmed, source)
    client.says("done")
    until(lambda: unharmed.counts().arrays == 0, "the arrays to be freed")
    client.goes_on()
    client.ends()


def test_eight_processes_that_ask_for_one_key_compile_once(unharmed: Any, start_client: Any) -> None:
    source = """
    @jitclient.jit
    def shared(x):
        import time
        time.sleep(1)
        return x * 7

    print(float(shared(np.float32(6))))
"""
    before = unharmed.counts()
    clients = [start_client(unharmed, source) for _ in range(8)]
    for client in clients:
        client.says("42.0")
        client.ends()
    after = unharmed.counts()
    assert (after.compiles - before.compiles, after.traces - before.traces) == (1, 1)
    assert after.hits - before.hits == 7


WHILE_A_BACKEND_STARTS = """
import os, sys, threading
import jitclient, jax
import jitclient.calls.general_path
from jax._src import xla_bridge

own, starts, forked = xla_bridge._init_backend, threading.Event(), threading.Event()

def slow(platform):
    starts.set()
    forked.wait()
    return own(platform)

xla_bridge._init_backend = slow
thread = threading.Thread(target=jax.devices)
thread.start()
starts.wait()
pid = os.fork()
if not pid:
    os._exit(0)
forked.set()
thread.join()
print(os.waitpid(pid, 0)[1])
"""


@pytest.mark.slow
def test_a_child_forked_while_a_backend_starts_waits_for_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", WHILE_A_BACKEND_STARTS],
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert (done.stdout, done.stderr) == ("0\n", "")
