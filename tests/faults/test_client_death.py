"""Clients that die, leave, or are interrupted: what they held goes, and what they still need stays."""

import signal
from typing import Any

import pytest

HOLDS = """
    held = jitclient.device_put([np.zeros(1000, np.float32) for _ in range(5)])
"""

PATIENT = """
    import jitclient.session.session
    jitclient.session.session._GOODBYE_SECONDS = 60  # on a busy machine
"""

BUSY = """
    import jax, jax.numpy as jnp

    @jitclient.jit
    def quick(x):
        return x + 1

    @jitclient.jit
    def slow(x):
        return jax.lax.fori_loop(0, 4_000_000, lambda _, c: jnp.tanh(c @ c), x[:8, :8])  # seconds, in one thread

    @jitclient.jit
    def endless(x):
        return jax.lax.while_loop(lambda c: c.sum() > -1, lambda c: c + 1, x)

    @jitclient.jit
    def slow_to_trace(x):
        WAITS
        return x * 3
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_clients_arrays_are_freed_at_once(
    unharmed: Any, start_client: Any, at_once: Any, number: signal.Signals
) -> None:
    client = start_client(unharmed, HOLDS + "    print('held')\n    signal.pause()")
    client.says("held")
    assert unharmed.counts().arrays == 5
    client.kill(number)
    at_once(lambda: unharmed.counts().sessions == 0, "the session to end")
    assert unharmed.counts().arrays == 0


def test_a_clean_end_frees_before_it_is_over(unharmed: Any, start_client: Any) -> None:
    client = start_client(unharmed, PATIENT + HOLDS + "    print('held')")
    client.says("held")
    client.ends()
    counts = unharmed.counts()
    assert (counts.sessions, counts.arrays) == (0, 0)


CALLS = BUSY + HOLDS + "    print('held')\n    FUNCTION(np.zeros((1000, 1000), np.float32))"


def test_a_client_killed_in_the_middle_of_a_run_frees_its_arrays_at_once(
    serve: Any, start_client: Any, at_once: Any, until: Any
) -> None:
    with serve() as daemon:
        client = start_client(daemon, CALLS.replace("FUNCTION", "endless"))
        client.says("held")
        until(lambda: daemon.phases() == ["running"], "the call to be under way")
        client.kill()
        at_once(lambda: daemon.counts().sessions == 0, "the session to end")
        assert daemon.phases() == ["running"]  # the call is still running
        assert daemon.counts().arrays == 0


def test_a_client_killed_in_the_middle_of_a_trace_frees_its_arrays_at_once(
    unharmed: Any, start_client: Any, at_once: Any, until: Any, gate: Any
) -> None:
    client = start_client(unharmed, CALLS.replace("WAITS", gate.waits).replace("FUNCTION", "slow_to_trace"))
    client.says("held")
    until(lambda: unharmed.phases() == ["tracing"], "the call to be under way")
    client.kill()
    at_once(lambda: unharmed.counts().sessions == 0, "the session to end")
    assert unharmed.phases() == ["tracing"]  # the call is still running
    assert unharmed.counts().arrays == 0
    assert unharmed.counts().abandoned_programs == 1
    gate.open()
    until(lambda: unharmed.phases() == [], "the call to end")
    assert unharmed.counts().abandoned_programs == 0


INTERRUPTED = (
    BUSY
    + """
    def tell():
        "Say that the main thread waits for the daemon: JAX may lose an interrupt of its own trace, or stay in that."
        sys.stdin.readline()
        while not any("connection.py" in file for file in files_of(threading.main_thread().ident)):
            time.sleep(0.01)
        print("waits")

    def files_of(thread):
        frame = sys._current_frames()[thread]
        while frame is not None:
            yield frame.f_code.co_filename
            frame = frame.f_back

    held = quick(np.ones((1000, 1000), np.float32))  # too large to come with the answer
    x = np.zeros((1000, 1000), np.float32)
    print("ready")
    sys.stdin.readline()
    threading.Thread(target=tell, daemon=True).start()
    try:
        while True:  # one call may end just before it is interrupted
            FUNCTION(x)
    except KeyboardInterrupt:
        print("interrupted")
    assert float(quick(np.float32(1))) == 2
    assert np.asarray(held)[3, 4] == 2
    print("works")
    sys.stdin.readline()
"""
)


def test_ctrl_c_in_a_long_call_leaves_the_session_and_nothing_of_the_call(
    unharmed: Any, start_client: Any, until: Any, gate: Any
) -> None:
    client = interrupted(unharmed, start_client, until, gate, "slow", "running")
    until(lambda: unharmed.phases() == [], "the interrupted call to end")
    until(lambda: unharmed.counts().arrays == 1, "what is held to be all there is")
    client.goes_on()
    client.ends()


def test_ctrl_c_in_a_long_trace_leaves_the_session(unharmed: Any, start_client: Any, until: Any, gate: Any) -> None:
    client = interrupted(unharmed, start_client, until, gate, "slow_to_trace", "tracing")
    assert unharmed.counts().arrays == 1
    client.goes_on()
    [line] = [line for line in client.ends().splitlines() if "continues" in line]
    assert line.startswith("jitserver: the daemon continues to compile slow_to_trace(f32[1000,1000]) for later calls;")


def interrupted(daemon: Any, start_client: Any, until: Any, gate: Any, function: str, phase: str) -> Any:
    """A client that was interrupted in a call of a function."""
    client = start_client(daemon, INTERRUPTED.replace("WAITS", gate.waits).replace("FUNCTION", function))
    client.says("ready")
    client.goes_on()
    until(lambda: daemon.phases() == [phase], "the call to be under way")
    client.goes_on()
    client.says("waits")
    client.kill(signal.SIGINT)
    client.says("interrupted")
    gate.open()  # before the trace of another function
    client.says("works")
    until(lambda: daemon.counts().arrays == 1, "what was dropped to go")
    assert daemon.counts().sessions == 1
    return client


INTERRUPTED_IN_A_CALLBACK = """
    import jax
    from jitclient.session import process

    held = jitclient.device_put(np.zeros(10, np.float32))
    connection = process.session().connection

    def wait(x):
        print("in the callback")
        while HELD:
            time.sleep(0.01)
        return x

    HELD = [True]

    @jitclient.jit
    def called_back(x):
        return BODY

    try:
        called_back(np.float32(1))
        print("finished")
    except KeyboardInterrupt:
        print("interrupted")
    assert process.session().connection is connection
    HELD.clear()
    print(float(called_back(np.float32(1))))
    assert np.asarray(held)[3] == 0
    sys.stdin.readline()
"""


CALLING = {
    "waited for": "jax.pure_callback(wait, x, x) + 1",
    "not waited for": "jax.debug.callback(wait, x) or x + 1",
    "one of many": "jax.lax.fori_loop(0, 3, lambda n, x: jax.debug.callback(wait, x) or x, x) + 1",
}


@pytest.mark.parametrize("kind", CALLING)
def test_ctrl_c_in_a_callback_leaves_the_session_and_its_connection(
    unharmed: Any, start_client: Any, until: Any, kind: str
) -> None:
    client = start_client(unharmed, INTERRUPTED_IN_A_CALLBACK.replace("BODY", CALLING[kind]))
    client.says("in the callback")
    client.kill(signal.SIGINT)
    client.says("interrupted", *["in the callback"] * (3 if kind == "one of many" else 1), "2.0")
    until(lambda: unharmed.counts().arrays == 1, "what is held to be all there is")
    assert unharmed.counts().sessions == 1
    client.goes_on()
    client.ends()


KILLED_IN_A_CALLBACK = """
    import jax

    def wait(x):
        print("in the callback")
        sys.stdin.readline()
        return x

    held = jitclient.device_put(np.zeros(10, np.float32))

    @jitclient.jit
    def called_back(x):
        return jax.pure_callback(wait, x, x) + 1

    print(float(called_back(np.float32(1))))
"""


def test_a_client_killed_in_a_callback_leaves_the_program_to_others(
    unharmed: Any, start_client: Any, until: Any
) -> None:
    first = start_client(unharmed, KILLED_IN_A_CALLBACK)
    first.says("in the callback")
    assert unharmed.phases() == ["running"]
    traces = unharmed.counts().traces
    first.kill()
    until(lambda: unharmed.phases() == [], "its run to end")
    until(lambda: unharmed.counts().sessions == 0, "its session to end")
    assert unharmed.counts().arrays == 0
    second = start_client(unharmed, KILLED_IN_A_CALLBACK)
    second.says("in the callback")
    second.goes_on()
    second.says("2.0")
    second.ends()
    assert unharmed.counts().traces == traces
