"""Clients that die, leave, or are interrupted: what they held goes, and what they still need stays."""

import signal
from pathlib import Path
from typing import Any

import pytest

HOLDS = """
    held = jitclient.device_put([np.zeros(1000, np.float32) for _ in range(5)])
"""

BUSY = """
    import jax

    @jitclient.jit
    def quick(x):
        return x + 1

    def wait(x):
        import time
        time.sleep(SECONDS)
        return x

    @jitclient.jit
    def slow(x):
        return jax.pure_callback(wait, jax.ShapeDtypeStruct((1000, 1000), "float32"), x)

    @jitclient.jit
    def slow_to_trace(x):
        import time
        time.sleep(SECONDS)
        return x * 3
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_clients_arrays_are_freed_at_once(
    unharmed: Any, start_client: Any, until: Any, number: signal.Signals
) -> None:
    client = start_client(unharmed, HOLDS + "    print('held')\n    signal.pause()")
    client.says("held")
    assert unharmed.counts().arrays == 5
    client.kill(number)
    until(lambda: unharmed.counts().sessions == 0, "the session to end", seconds=5)
    assert unharmed.counts().arrays == 0


def test_a_clean_end_frees_before_it_is_over(unharmed: Any, start_client: Any) -> None:
    client = start_client(unharmed, HOLDS + "    print('held')")
    client.says("held")
    client.ends()
    counts = unharmed.counts()
    assert (counts.sessions, counts.arrays) == (0, 0)


@pytest.mark.parametrize("function", ["slow", "slow_to_trace"])
def test_a_client_killed_in_the_middle_of_a_call_frees_its_arrays_at_once(
    unharmed: Any, start_client: Any, until: Any, function: str
) -> None:
    source = BUSY.replace("SECONDS", "3") + HOLDS
    before = unharmed.counts()
    client = start_client(unharmed, source + f"    print('held')\n    {function}(np.zeros((1000, 1000), np.float32))")
    client.says("held")
    until(lambda: unharmed.counts().traces > before.traces, "the call to be under way")
    client.kill()
    until(lambda: unharmed.counts().sessions == 0, "the session to end", seconds=2.5)  # while the call goes on
    assert unharmed.counts().arrays == 0


INTERRUPTED = """
    import jax

    @jitclient.jit
    def quick(x):
        return x + 1

    def wait(x):
        import pathlib, time
        while pathlib.Path("GATE").exists():
            time.sleep(0.01)
        return x

    @jitclient.jit
    def slow(x):
        return jax.pure_callback(wait, jax.ShapeDtypeStruct((1000, 1000), "float32"), x)

    @jitclient.jit
    def slow_to_trace(x):
        import time
        time.sleep(2)
        return x * 3

    held = quick(np.ones((1000, 1000), np.float32))  # too large to come with the answer
    x = np.zeros((1000, 1000), np.float32)
    print("ready")
    sys.stdin.readline()
    try:
        FUNCTION(x)
        print("finished")
    except KeyboardInterrupt:
        print("interrupted")
    assert float(quick(np.float32(1))) == 2
    assert np.asarray(held)[3, 4] == 2
    print("works")
    sys.stdin.readline()
"""


def test_ctrl_c_in_a_long_call_leaves_the_session_and_nothing_of_the_call(
    unharmed: Any, start_client: Any, until: Any, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    client = interrupted(unharmed, start_client, until, gate, "slow", "calls")
    during = unharmed.holdings()["descriptors"]
    gate.unlink()
    until(lambda: unharmed.holdings()["descriptors"] < during, "the connection of the interrupted call to end")
    assert unharmed.counts().arrays == 1  # what is held is all there is
    client.goes_on()
    client.ends()


def test_ctrl_c_in_a_long_trace_leaves_the_session(
    unharmed: Any, start_client: Any, until: Any, tmp_path: Path
) -> None:
    client = interrupted(unharmed, start_client, until, tmp_path / "gate", "slow_to_trace", "traces")
    assert unharmed.counts().arrays == 1
    client.goes_on()
    client.ends()


def interrupted(daemon: Any, start_client: Any, until: Any, gate: Path, function: str, counter: str) -> Any:
    client = start_client(daemon, INTERRUPTED.replace("GATE", str(gate)).replace("FUNCTION", function))
    client.says("ready")
    before = getattr(daemon.counts(), counter)
    client.goes_on()
    until(lambda: getattr(daemon.counts(), counter) > before, "the call to be under way")
    client.kill(signal.SIGINT)
    client.says("interrupted", "works")
    until(lambda: daemon.counts().arrays == 1, "what was dropped to go")
    assert daemon.counts().sessions == 1
    return client


def test_handles_dropped_in_an_interrupted_exchange_are_freed_by_the_next(
    unharmed: Any, client_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import numpy as np

    import jitclient
    from jitclient.wire.connection import ClientConnection

    def interrupted(*_: Any) -> bytes:
        raise KeyboardInterrupt

    with client_of(unharmed.address):
        dropped, kept = jitclient.device_put([np.zeros(10, np.float32), np.ones(10, np.float32)])
        assert unharmed.counts().arrays == 2
        del dropped
        with monkeypatch.context() as patch:
            patch.setattr(ClientConnection, "send_frame", interrupted)
            with pytest.raises(KeyboardInterrupt):
                kept.block_until_ready()
        kept.block_until_ready()
        assert unharmed.counts().arrays == 1
