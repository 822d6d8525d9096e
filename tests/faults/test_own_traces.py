"""Clients that trace what the daemon traces, too: whatever ends one of the traces, or the wait for the other one."""

import signal
from typing import Any

import pytest

pytestmark = pytest.mark.slow

TRACED = """
    import jax

    @jitclient.jit
    def traced(x):
        WAITS
        print("traced")
        return x * 2

    print("ready")
    sys.stdin.readline()
    try:
        print(float(traced(np.float32(4))))
    except KeyboardInterrupt:
        print("interrupted")
"""


@pytest.fixture
def start(start_client: Any) -> Any:
    """Start a client of a daemon that makes its call when asked; its trace waits where `waits` says."""

    def started(daemon: Any, waits: str = "pass", source: str = TRACED, **env: str) -> Any:
        client = start_client(daemon, source.replace("WAITS", waits), **env)
        client.says("ready")
        return client

    return started


def made(daemon: Any) -> tuple[int, int]:
    """How many programs it traced and compiled."""
    counts = daemon.counts()
    return counts.traces, counts.compiles


def test_clients_that_miss_together_have_their_program_compiled_once(serve: Any, start: Any, gate: Any) -> None:
    with serve() as daemon:
        clients = [start(daemon, gate.waits) for _ in range(2)]
        for client in clients:
            client.goes_on()
            client.says("traced")  # the daemon waits
        gate.open()
        for client in clients:
            client.says("8.0")
            client.ends()
        assert made(daemon) == (1, 1)
        later = start(daemon, gate.waits)
        later.goes_on()
        later.says("8.0")  # without a trace
        later.ends()
        assert made(daemon) == (1, 1)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_client_that_ends_in_its_own_trace_leaves_what_the_daemon_made_to_the_next(
    serve: Any, start: Any, gate: Any, until: Any, number: signal.Signals
) -> None:
    with serve() as daemon:
        first = start(daemon, gate.waits_here)
        first.goes_on()
        until(lambda: made(daemon) == (1, 1) and not daemon.phases(), "the daemon to be done")
        first.kill(number)
        if number == signal.SIGINT:
            first.says("interrupted")
            assert "continues" not in first.ends()
        until(lambda: daemon.counts().sessions == 0, "the session to end")
        gate.open()
        second = start(daemon, gate.waits_here)
        second.goes_on()
        second.says("traced", "8.0")  # no client's trace has agreed with it yet
        second.ends()
        third = start(daemon, gate.waits_here)
        third.goes_on()
        third.says("8.0")
        third.ends()
        assert made(daemon) == (1, 1)


def test_an_interrupt_of_an_own_trace_says_if_the_daemon_continues(
    serve: Any, start: Any, gate: Any, until: Any
) -> None:
    with serve() as daemon:
        client = start(daemon, f"{gate.waits} or print('here', flush=True) or time.sleep(600)")
        client.goes_on()
        client.says("here")
        until(lambda: daemon.phases() == ["tracing"], "the daemon to trace")
        client.kill(signal.SIGINT)
        client.says("interrupted")
        [line] = [line for line in client.ends().splitlines() if "continues" in line]
        assert line == (
            "jitserver: the daemon continues to compile traced(f32[]) for later calls; "
            "`jitserver status --calls` lists it"
        )
        gate.open()


def test_a_daemon_that_dies_in_a_clients_own_trace_is_replaced_and_nothing_is_traced_twice(
    serve: Any, start: Any, gate: Any, until: Any
) -> None:
    with serve() as daemon:
        client = start(daemon, gate.waits_here, JITSERVER_AUTOSTART="1")
        client.goes_on()
        until(lambda: made(daemon) == (1, 1), "the daemon to be done")
        daemon.process.kill()
        daemon.process.wait()
        gate.open()
        client.says("traced", "8.0")
        client.ends()
        later = start(daemon, gate.waits_here)
        later.goes_on()
        later.says("8.0")
        later.ends()


RAISES_HERE = """
    import jax
    from jitclient.session import process

    class MineError(Exception):
        pass

    process.raises = True  # of an installed package, and no part of the function

    @jitclient.jit
    def traced(x):
        from jitclient.session import process
        if not process.inside_daemon and process.raises:
            raise MineError("here")
        return doubled(x)

    def doubled(x):
        WAITS
        return x * 2

    held = jitclient.device_put(np.arange(3, dtype=np.float32))
    print("ready")
    sys.stdin.readline()
    for _ in range(2):
        try:
            traced(np.float32(4))
        except MineError as error:
            print(error)
    process.raises = False
    print(np.asarray(held))
    print(float(traced(np.float32(4))))
"""


def test_what_only_the_own_trace_raises_is_raised_while_the_daemon_still_traces(
    serve: Any, start: Any, gate: Any
) -> None:
    with serve() as daemon:
        client = start(daemon, gate.waits, RAISES_HERE)
        client.goes_on()
        client.says("here", "here", "[0. 1. 2.]")
        gate.open()
        client.says("8.0")
        client.ends()


LOCKED = """
    from jitclient.session import process

    # Of an installed package, and no part of the functions.
    lock = process.lock = threading.RLock()
    process.in_first, process.in_second = threading.Event(), threading.Event()

    @jitclient.jit
    def first(x):
        from jitclient.session import process
        if not process.inside_daemon:
            process.in_first.set()
            process.in_second.wait()
        return x + 1

    @jitclient.jit
    def second(x):
        from jitclient.session import process
        if not process.inside_daemon:
            process.in_second.set()
            with process.lock:
                pass
        return x + 2

    def in_thread():
        process.in_first.wait()
        print(float(second(np.float32(1))))

    print("ready")
    sys.stdin.readline()
    thread = threading.Thread(target=in_thread)
    with lock:
        thread.start()
        print(float(first(np.float32(1))))
    thread.join()
"""


FORKS = """
    from jitclient.session import process

    @jitclient.jit
    def forks(x):
        from jitclient.session import process
        if not process.inside_daemon:
            process.child = os.fork()
        return x + 1

    held = jitclient.device_put(np.arange(3, dtype=np.float32))
    print("ready")
    sys.stdin.readline()
    found = float(forks(np.float32(1))), float(np.asarray(held)[2])
    if process.child:
        assert os.waitpid(process.child, 0)[1] == 0
    print(*found)
    sys.stdout.flush()
    if not process.child:
        os._exit(0)  # JAX may hang otherwise
"""


@pytest.mark.parametrize(
    ("source", "says"),
    [(LOCKED, ["2.0", "3.0"]), (FORKS, ["2.0 2.0", "2.0 2.0"])],
    ids=["waits for another thread that traces", "forks, and the child continues"],
)
def test_a_trace_that(serve: Any, start: Any, source: str, says: list[str]) -> None:
    with serve() as daemon:
        client = start(daemon, source=source)
        client.goes_on()
        client.says(*says)
        client.ends()
