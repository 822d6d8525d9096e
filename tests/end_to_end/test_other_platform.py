"""A daemon on another platform than the CPU: the package in tests/other_platform. Skipped, and said so, without it."""

import os
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from jitclient.errors import DaemonUnavailable
from jitserver.store.journal import SLOT, read
from jitserver.store.strikes import Strikes

from .accelerator_programs import FILLS, OVERWRITES, TWO_DEVICES

pytestmark = [
    pytest.mark.other_platform,
    pytest.mark.timeout(600),  # some start four daemons and as many clients
    pytest.mark.skipif(
        not entry_points(group="jax_plugins", name="other_platform"),
        reason="NOT TESTED HERE: needs Python 3.12 and `pip install ./tests/other_platform`",
    ),
]

FAKE = {"OTHER_PLATFORM": "fake", "OTHER_PLATFORM_DEVICES": "1", "JAX_PLATFORMS": ""}
TWO_FAKE = {**FAKE, "OTHER_PLATFORM_DEVICES": "2"}

PROGRAM = """
    import json, numpy as np, jitclient, jax

    @jitclient.jit
    def step(w, x):
        return w - 0.1 * (x.T @ (x @ w)) * (1 if jax.default_backend() == "cpu" else 2)

    w, x = np.ones((64, 8), np.float32), np.ones((32, 64), np.float32) / 64
    for _ in range(5):
        w = step(w, x)
    print(json.dumps([float(np.asarray(w).sum()), jax.default_backend()]))
"""


@pytest.fixture
def fake(own: Any) -> Any:
    """A daemon on the other platform."""
    own.env.update(FAKE, JITSERVER_CACHE_DIR=str(own.folder / "cache"))
    return own


@pytest.fixture
def usage(tmp_path: Path) -> Any:
    """The bytes in use on each device, of which this process is a holder, too."""
    from jax_plugins.other_platform.memory import Usage

    (tmp_path / "usage").mkdir()
    return Usage(str(tmp_path / "usage"))


def limited(mib: int, tmp_path: Path) -> dict[str, str]:
    """Return the variables of a platform with so much memory, which it shares with those of this test."""
    return {"OTHER_PLATFORM_MEMORY": str(mib << 20), "OTHER_PLATFORM_SHARED": str(tmp_path / "usage")}


def test_the_platform_is_an_accelerator_to_plain_jax(run_script: Any, tmp_path: Path, usage: Any) -> None:
    program = """
        import json, jax, jax.numpy as jnp, numpy as np
        from jax.experimental import serialize_executable

        def fails(use):
            try:
                use()
            except (BufferError, RuntimeError) as error:
                return str(error).partition(":")[0]

        device, other = jax.devices()
        source = np.arange(1_000_000, dtype=np.float32)
        array = jax.device_put(source)
        source[-1] = 5
        slow = jax.jit(lambda x: jax.lax.fori_loop(0, 50, lambda _, c: jnp.tanh(c @ c), x))(jnp.eye(500))
        was_ready = slow.is_ready()
        given = jnp.ones(1000)
        step = jax.jit(lambda x: x + 1, donate_argnums=0).lower(given).compile()
        step(given)
        used = [each.memory_stats()["bytes_in_use"] >> 20 for each in (device, other)]
        too_large = jnp.zeros(10 << 20, np.int8)  # kept: the simulated device cannot free it while an error is raised
        print(json.dumps({
            "platform": [jax.default_backend(), device.platform, device.device_kind, device.id, other.id],
            "kinds": sorted(memory.kind for memory in device.addressable_memories() if "host" not in memory.kind),
            "reads its source later": float(array[-1]) == 5,
            "is a copy": bool(fails(lambda: memoryview(array))),
            "calls return first": not was_ready and bool(np.isfinite(np.asarray(slow)).all()),
            "donates": given.is_deleted() and bool(fails(lambda: np.asarray(given))),
            "memory": [device.memory_stats()["bytes_limit"] >> 20, *used],
            "is full": fails(too_large.block_until_ready),
            "has room": fails(lambda: jax.device_put(np.zeros(10 << 20, np.int8), other)),
            "refuses": fails(lambda: serialize_executable.deserialize_and_load(*serialize_executable.serialize(step))),
        }))
    """
    usage.own[4] = 50 << 20
    env = {**FAKE, "OTHER_PLATFORM_DEVICES": "4,6", "OTHER_PLATFORM_SLOW": "0.2", "OTHER_PLATFORM_REFUSES": "1"}
    assert run_script(program, env={**env, **limited(64, tmp_path)}) == {
        "platform": ["fake", "fake", "Fake accelerator", 4, 6],
        "kinds": ["device"],
        "reads its source later": True,
        "is a copy": True,
        "calls return first": True,
        "donates": True,
        "memory": [64, 54, 0],
        "is full": "RESOURCE_EXHAUSTED",
        "has room": None,
        "refuses": "INTERNAL",
    }
    assert usage.of(4) == 50 << 20  # those of a process that has ended are free


def test_a_device_that_breaks_fails_later_and_until_its_process_exits(run_script: Any, tmp_path: Any) -> None:
    program = """
        import json, pathlib, jax, numpy as np

        broken = pathlib.Path("broken")
        guilty, innocent = jax.jit(lambda x: x + 1), jax.jit(lambda x: x * 2)
        array = jax.device_put(np.ones(3))
        guilty(array), innocent(array).block_until_ready()
        broken.touch()
        poisoned = guilty(array)
        raised = [broken.exists()]
        for use in (
            lambda: poisoned.block_until_ready(),
            lambda: innocent(array).block_until_ready(),
            lambda: np.asarray(array),
            lambda: jax.device_put(1).block_until_ready(),
        ):
            try:
                use()
            except (jax.errors.JaxRuntimeError, ValueError) as error:  # JAX's fast path raises the latter
                raised.append(str(error).partition(":")[0])
        print(json.dumps(raised))
    """
    env = {**FAKE, "OTHER_PLATFORM_BROKEN": str(tmp_path / "broken")}
    assert run_script(program, env=env) == [False, *["INTERNAL"] * 4]


def test_executables_are_found_after_a_restart(fake: Any) -> None:
    with fake.serving():
        first = fake.run(PROGRAM, **FAKE)
        assert fake.counts()["devices"] == ("fake:0 Fake accelerator",)
        assert first[1] == "cpu"  # the client leaves the device alone
    with fake.serving():
        assert fake.run(PROGRAM, **FAKE) == first
        made = fake.counts()
        assert (made["traces"], made["compiles"], made["local_runs"]) == (0, 0, 0)


def test_a_client_that_keeps_the_device_finds_the_same_programs(fake: Any) -> None:
    with fake.serving():
        pinned = fake.run(PROGRAM, **FAKE)
        kept = fake.run(PROGRAM, **FAKE, JITSERVER_CLIENT_DEVICE="keep")
        assert (pinned[1], kept[1]) == ("cpu", "fake")
        assert kept[0] == pinned[0]
        made = fake.counts()
        assert (made["traces"], made["compiles"], made["local_runs"]) == (1, 1, 0)


def test_a_program_that_sorts_is_found_after_a_restart(fake: Any) -> None:
    program = """
        import json, jax.numpy as jnp, numpy as np, jitclient
        print(json.dumps(np.asarray(jitclient.jit(lambda x: jnp.sort(x))(np.arange(4.0)[::-1])).tolist()))
    """
    traces = []
    for _ in range(2):
        with fake.serving():
            assert fake.run(program, **FAKE) == [0, 1, 2, 3]
            traces.append(fake.counts()["traces"])
    assert traces == [1, 0]


def test_another_version_of_the_platform_has_programs_of_its_own(fake: Any) -> None:
    compiles = []
    for version in ("driver 1", "driver 2", "driver 2"):
        with fake.serving(OTHER_PLATFORM_VERSION=version):
            fake.run(PROGRAM, **FAKE)
            compiles.append(fake.counts()["compiles"])
    assert compiles == [1, 1, 0]


def test_programs_that_the_device_refuses_to_load_are_made_again_and_kept(fake: Any) -> None:
    made, values = [], []
    for refuses in ({}, {"OTHER_PLATFORM_REFUSES": "1"}, {}):
        with fake.serving(**refuses):
            values += [fake.run(PROGRAM, **FAKE) for _ in range(2)]
            counts = fake.counts()
            made.append([counts[name] for name in ("traces", "compiles", "local_runs", "client_traces")])
    assert values == values[:1] * 6
    assert made == [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0]]


def test_devices_are_found_by_their_order_whatever_their_ids_are(fake: Any) -> None:
    fake.env["OTHER_PLATFORM_DEVICES"] = "4,6"
    two, traces = {**FAKE, "JAX_NUM_CPU_DEVICES": "2"}, []
    for _ in range(2):
        with fake.serving():
            assert fake.run(TWO_DEVICES, **two) == [[[1], [0, 1], [1], [0, 1]], [[2.0 * n for n in range(8)]] * 4]
            traces.append(fake.counts()["traces"] + fake.counts()["client_traces"])
    assert traces == [4, 0]


def test_arguments_are_those_of_the_call_however_late_the_device_reads_them(fake: Any) -> None:
    with fake.serving(OTHER_PLATFORM_SLOW="0.2"):
        found = fake.run(OVERWRITES, **FAKE)
    assert found == [[100_001.0 * n, 17.0 * n, n + 1, n, n] for n in range(5)]


def test_large_values_of_calls_and_puts_use_the_same_blocks_of_shared_memory(fake: Any) -> None:
    program = """
        import json, numpy as np, jitclient
        from jitclient.session.blocks import Blocks
        from jitclient.wire.shared_memory import Block

        made, init, loaded, load = [], Block.__init__, [], Blocks.load
        Block.__init__ = lambda self, *arguments: (made.append(arguments), init(self, *arguments))[1]
        Blocks.load = lambda self, run, values: loaded.append(bool(values)) or load(self, run, values)
        double = jitclient.jit(lambda x: x * 2)
        x, counts = np.ones(500_000, np.float32), []
        for n in range(40):
            x[:] = n
            result = double(x)
            assert np.asarray(result)[-1] == 2 * n
            del result
            put = jitclient.device_put(x).block_until_ready()
            x[:] = -1
            assert np.asarray(put)[-1] == n
            counts.append((len(made), sum(loaded)))
        print(json.dumps(np.subtract(counts[-1], counts[9]).tolist()))
    """
    with fake.serving(OTHER_PLATFORM_SLOW="0.01"):
        assert fake.run(program, **FAKE) == [0, 60]


@pytest.mark.parametrize("first_use", ["jax.devices()", "jax.numpy.ones(3)", "jax.random.key(0)"])
def test_a_client_that_uses_jax_first_takes_no_device(fake: Any, run_script: Any, first_use: str) -> None:
    program = f"""
        import json, jitclient, jax
        {first_use}
        jitclient.jit(lambda x: x + 1)(1.0)
        import jax._src.xla_bridge as bridge
        print(json.dumps(sorted(bridge._backends)))
    """
    with fake.serving():
        assert fake.run(program, **FAKE) == ["cpu"]


def test_a_read_leaves_no_copy_in_the_memory_of_the_daemon(fake: Any) -> None:
    program = """
        import json, numpy as np, jitclient, sys
        make = jitclient.jit(lambda x: x + np.zeros(5_000_000, np.float32))
        made = [make(np.float32(n)).block_until_ready() for n in range(12)]

        def anonymous():
            text = open(f"/proc/{sys.argv[1]}/status").read()
            return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("RssAnon")) * 1024

        np.asarray(made[0])
        before = anonymous()
        for array in made[1:]:
            np.asarray(array)
        print(json.dumps((anonymous() - before) / sum(array.nbytes for array in made[1:])))
    """
    with fake.serving() as daemon:
        assert fake.run(program, str(daemon.pid), **FAKE) < 0.5


def test_each_device_has_a_budget_and_arrays_of_the_host_take_none_of_it(fake: Any) -> None:
    program = """
        import json, jax, numpy as np, jitclient

        first, second = jax.devices()
        on_host = jax.sharding.SingleDeviceSharding(first, memory_kind="pinned_host")
        mib = lambda count: np.zeros(count << 20, np.int8)
        kept = [jitclient.device_put(mib(6), place) for place in (first, second, on_host)]
        grow = jitclient.jit(lambda x: jax.numpy.zeros(6 << 20, np.int8) + x)
        errors = []
        for exceed in (
            lambda: jitclient.device_put(mib(6)),
            lambda: jitclient.device_put(mib(6), second),
            lambda: grow(np.int8(1)).block_until_ready(),
            lambda: grow(jitclient.device_put(np.int8(1), second)).block_until_ready(),
        ):
            try:
                exceed()
            except jitclient.ArrayBudgetExceeded as error:
                errors.append(str(error))
        kept.append(jitclient.device_put(mib(6), on_host))
        from jitclient.session import process
        from jitclient.wire.messages import Verb
        from jitclient.wire.named_arrays import Holdings
        found = process.session().ask(Verb.ARRAYS, None, Holdings)
        print(json.dumps([errors, [[memory.where, memory.nbytes >> 20] for memory in found.memories]]))
    """
    two = {**TWO_FAKE, "JAX_NUM_CPU_DEVICES": "2"}
    with fake.serving("--array-memory", "10", **TWO_FAKE):
        errors, memories = fake.run(program, **two)
    places = ["on fake:0", "on fake:1", "on fake:0", "on fake:1"]
    assert [
        f"budget of 10 MiB for arrays {where}. The daemon holds 6 MiB {where}: " in error
        for where, error in zip(places, errors, strict=True)
    ] == [True] * 4, errors
    assert memories == [["on fake:0", 6], ["on fake:1", 6], ["in the host's memory", 12]]


def test_a_device_that_another_process_has_filled_raises_what_jax_raises(
    fake: Any, tmp_path: Path, usage: Any, until: Any
) -> None:
    usage.own[0] = 40 << 20
    with fake.serving(**limited(64, tmp_path)):
        values, error, *more = fake.run(FILLS, "8", **FAKE)
        assert (values, error) == ([0, 1], "RESOURCE_EXHAUSTED")
        assert "The daemon holds 16 MiB on fake:0" in more[-1]
        until(lambda: usage.of(0) < 41 << 20, "the arrays of a client that has ended to leave the device")
        usage.own[0] = 0
        values, _, reason = fake.run(FILLS, "8", **FAKE)
        assert values == list(range(7))  # nine tenths of the memory
        assert "budget of 58 MiB for arrays on fake:0" in reason


def test_the_device_holds_the_arrays_of_the_clients_and_no_more(fake: Any, tmp_path: Path, usage: Any) -> None:
    program = """
        import functools, json, sys, time, jax, numpy as np, jitclient
        from jitclient.session import process
        from jitclient.wire.messages import Verb
        from jitclient.wire.named_arrays import Holdings

        def excess():
            np.asarray(jitclient.device_put(np.int8(1)))  # what was dropped leaves the daemon with the next message
            for _ in range(500):
                held = process.session().ask(Verb.ARRAYS, None, Holdings).memories[0].nbytes
                excess = int(np.fromfile(sys.argv[1], np.int64)[0]) - held
                if abs(excess) < 1 << 16:
                    break
                time.sleep(0.01)
            return [held >> 20, abs(excess) >> 16]

        @functools.partial(jitclient.jit, donate_argnums=0)
        def donating(x):
            return x + 1

        @jitclient.jit
        def pair(x):
            return x * 2, x[:5]

        found, x = [], jitclient.device_put(np.zeros(8 << 20, np.int8))
        found.append(excess())
        x = donating(x)
        found.append(excess())
        y, part = pair(x)
        np.asarray(y), np.asarray(part)
        found.append(excess())
        try:
            big = jitclient.jit(lambda: jax.numpy.zeros(60 << 20, np.int8))().block_until_ready()
        except jitclient.ArrayBudgetExceeded:
            found.append(excess())
        kept = jitclient.keep("kept", y)
        del x, y, part
        found.append(excess())
        print(json.dumps(found))
    """
    with fake.serving(**limited(64, tmp_path)) as daemon:
        found = fake.run(program, str(tmp_path / "usage" / str(daemon.pid)), **FAKE)
    assert found == [[8, 0], [8, 0], [16, 0], [16, 0], [8, 0]]


# ---- crashes after a launch

CRASHES = """
    import json, pathlib, sys, jax, jax.numpy as jnp, numpy as np, jitclient

    def looped(x, n):
        return jax.lax.fori_loop(0, n, lambda _, c: jnp.tanh(c @ c), x)

    @jitclient.jit
    def innocent(x, n):
        return looped(x, n)

    @jitclient.jit
    def crashing(x, n):
        return looped(x, n) + 1

    # On the daemon, because a call whose arguments are all sent waits for its results.
    x, ever = jitclient.device_put((np.eye(100, dtype=np.float32), np.int32(2**31 - 1)))
"""


def crashed_functions(cache: Path) -> dict[str, int]:
    """Return the names of the functions that have strikes, and the numbers of these."""
    paths = [path for path in cache.iterdir() if (path / "strikes").exists()]
    return {suspect.name: len(suspect.strikes) for path in paths for suspect in Strikes(path).all().values()}


def in_journal(pid: int) -> list[str]:
    """Return the labels of the programs in the crash journal of a daemon."""
    mapped = {line.split()[-1] for line in Path(f"/proc/{pid}/maps").read_text().splitlines()}
    data = b"".join(Path(name).read_bytes() for name in mapped if name.endswith(".journal"))
    noted = [read(data[start : start + SLOT]) for start in range(0, len(data), SLOT)]
    return [work.label.partition("(")[0] for work in noted if work is not None]


def test_a_program_that_crashes_after_its_launch_is_refused(fake: Any, tmp_path: Path) -> None:
    program = """
    try:
        print(json.dumps(float(np.asarray(crashing(x, np.int32(10_000)))[0, 1])))
    except jitclient.ArrayLost:
        print("null")
    """
    (tmp_path / "aborts").touch()
    values = []
    for _ in range(4):
        with fake.serving(OTHER_PLATFORM_ABORT=str(tmp_path / "aborts")):
            values.append(fake.run(CRASHES + program, **FAKE, JITSERVER_FALLBACK="local"))
    assert values == [None, None, None, 1.0]


def test_a_program_that_ran_beside_a_crash_is_cleared_by_its_next_run(fake: Any, tmp_path: Path, until: Any) -> None:
    crashes = """
    np.asarray(innocent(x, np.int32(1))), np.asarray(crashing(x, np.int32(1)))  # compiled
    still_computing = innocent(x, ever)
    still_computing.is_ready()  # the daemon has launched it
    pathlib.Path("aborts").touch()
    try:
        np.asarray(crashing(x, ever))
    except jitclient.ArrayLost:
        print("null")
    """
    cache = Path(fake.env["JITSERVER_CACHE_DIR"])
    with fake.serving(OTHER_PLATFORM_ABORT=str(tmp_path / "aborts")) as daemon:
        assert fake.run(CRASHES + crashes, **FAKE) is None
    with fake.serving() as daemon:
        assert crashed_functions(cache) == {"innocent": 1, "crashing": 1}
        value = "print(json.dumps(float(np.asarray(innocent(x, np.int32(10)))[0, 1])))"
        assert fake.run(f"{CRASHES}\n    {value}", **FAKE) == 0
        assert crashed_functions(cache) == {"crashing": 1}
        assert fake.run(f"{CRASHES}\n    {value}", **FAKE) == 0  # and once more, not alone
        until(lambda: not in_journal(daemon.pid), "the journal to forget what has finished")


# ---- a device that has failed for good


def test_a_device_that_fails_for_good_costs_its_arrays_and_no_more(fake: Any, tmp_path: Path) -> None:
    breaks = """
        import json, pathlib, numpy as np, jitclient

        @jitclient.jit
        def step(x):
            return x * 2

        x = np.ones(3, np.float32)
        unread = step(jitclient.device_put(x)).block_until_ready()
        pathlib.Path("broken").touch()
        again = np.asarray(step(x)).tolist()
        try:
            np.asarray(unread)
        except jitclient.ArrayLost as error:
            print(json.dumps([again, str(error)]))
    """
    with fake.serving(OTHER_PLATFORM_BROKEN=str(tmp_path / "broken")):
        again, lost = fake.run(breaks, **FAKE)
        assert again == [2.0] * 3  # repeated at the next daemon
        assert "CUDA_ERROR_ILLEGAL_ADDRESS" in lost
        assert "a device has failed for good" in fake.counts()["restarted"]
        assert fake.run(PROGRAM, **FAKE)[1] == "cpu"
        assert fake.counts()["local_runs"] == 0


def test_an_error_that_arrives_with_a_later_call_costs_that_call_nothing(fake: Any, tmp_path: Path) -> None:
    program = """
        import json, pathlib, numpy as np, jitclient

        @jitclient.jit
        def guilty(x):
            return x * 3

        @jitclient.jit
        def innocent(x):
            return x * 2

        host, there = np.ones(3, np.float32), jitclient.device_put(np.ones(3, np.float32))
        np.asarray(guilty(there)), np.asarray(innocent(there)), np.asarray(innocent(host))
        pathlib.Path("broken").touch()
        failed = guilty(there)
        while pathlib.Path("broken").exists():
            failed.is_ready()  # it is launched, without an error
        value, lost = np.asarray(innocent(host)).tolist(), []
        for use in (lambda: np.asarray(failed), lambda: np.asarray(innocent(failed))):
            try:
                use()
            except jitclient.ArrayLost as error:
                lost.append("CUDA_ERROR_ILLEGAL_ADDRESS" in str(error))
        print(json.dumps([value, lost, np.asarray(guilty(host)).tolist()]))
    """
    with fake.serving(OTHER_PLATFORM_BROKEN=str(tmp_path / "broken")):
        assert fake.run(program, **FAKE) == [[2.0] * 3, [True] * 2, [3.0] * 3]
        assert fake.counts()["local_runs"] == 0


@pytest.mark.parametrize("cause", ["device", "kill"])
def test_calls_of_values_that_are_not_computed_yet_are_repeated_at_the_next_daemon(
    fake: Any, tmp_path: Path, cause: str
) -> None:
    program = """
        import json, os, pathlib, select, signal, sys, jax, jax.numpy as jnp, numpy as np, jitclient
        from jitclient.wire.connection import ClientConnection

        @jitclient.jit
        def step(x, n):
            return jax.lax.fori_loop(0, n, lambda _, c: jnp.sin(c) + 1, x)

        x, waits, reply = np.zeros((300, 300), np.float32), [], ClientConnection.reply
        for _ in range(3):
            expected = np.asarray(step(x, np.int32(10)))
        ClientConnection.reply = lambda *given: waits.append(1) or reply(*given)
        if sys.argv[1] == "kill":
            endless = [step(x, np.int32(2**31 - 1)) for _ in range(3)]
        else:
            pathlib.Path("broken").touch()
        made = [step(x, np.int32(10)) for _ in range(3)]
        waited = len(waits)
        x[:] = 5
        if sys.argv[1] == "kill":
            del endless
            daemon = os.pidfd_open(int(sys.argv[2]))
            signal.pidfd_send_signal(daemon, signal.SIGKILL)
            select.select([daemon], [], [])
            sys.path.append(os.environ["TESTS"])
            from running_daemon import run_daemon

            with run_daemon(os.environ["JITSERVER_ADDRESS"], os.environ["CACHE"]):
                values = [np.asarray(each) for each in made]
        else:
            values = [np.asarray(each) for each in made]
        print(json.dumps([waited, [bool((value == expected).all()) for value in values]]))
    """
    with fake.serving(OTHER_PLATFORM_BROKEN=str(tmp_path / "broken")) as daemon:
        where = {"CACHE": str(fake.folder / "cache"), "TESTS": str(Path(__file__).parents[1])}
        waited, are_right = fake.run(program, cause, str(daemon.pid), **FAKE, **where)
        assert are_right == [True] * 3
        assert waited == 0
        assert cause == "kill" or "a device has failed for good" in fake.counts()["restarted"]


def test_a_daemon_whose_device_fails_at_its_start_leaves_the_address(fake: Any, tmp_path: Path) -> None:
    (tmp_path / "broken").touch()
    with (
        pytest.raises(DaemonUnavailable, match="CUDA_ERROR_ILLEGAL_ADDRESS") as raised,
        fake.serving(OTHER_PLATFORM_BROKEN=str(tmp_path / "broken"), PYTHONWARNINGS="default::ResourceWarning"),
    ):
        pass
    assert "unclosed file" not in str(raised.value)


@pytest.mark.parametrize("is_freed", [True, False])
def test_a_call_of_values_that_finds_the_device_full_is_made_again_when_there_is_room(
    fake: Any, tmp_path: Path, usage: Any, is_freed: bool
) -> None:
    program = """
        import json, sys, jax, numpy as np, jitclient

        @jitclient.jit
        def full(n):
            return jax.numpy.full(8 << 20, n, np.int8), n + 1

        kept = full(np.int8(1))[0].block_until_ready()
        made = full(np.int8(2))[0]
        try:
            np.asarray(kept)  # the daemon has launched the second call by then
            if len(sys.argv) > 1:
                with open(sys.argv[1], "r+b") as held_by_the_test:
                    held_by_the_test.write(bytes(8))
            print(json.dumps([int(np.asarray(each)[-1]) for each in (kept, made)]))
        except (jax.errors.JaxRuntimeError, ValueError) as error:
            print(json.dumps([str(error).partition(":")[0], *error.__notes__]))
    """
    usage.own[0] = 50 << 20
    with fake.serving(**limited(64, tmp_path)):
        if is_freed:
            assert fake.run(program, str(tmp_path / "usage" / str(os.getpid())), **FAKE) == [1, 2]
        else:
            error, note = fake.run(program, **FAKE)
            assert error == "RESOURCE_EXHAUSTED"
            assert note.startswith("The daemon holds ")


@pytest.mark.parametrize("failures", [1, 1000], ids=["once", "always"])
def test_a_call_without_memory_is_repeated_once_and_then_says_who_holds_it(
    fake: Any, tmp_path: Path, failures: int
) -> None:
    program = """
        import json, pathlib, jax, numpy as np, jitclient

        @jitclient.jit
        def step(x):
            return x * 2

        kept = jitclient.device_put(np.ones(3, np.float32))
        np.asarray(step(kept))
        pathlib.Path("full").write_bytes(bytes(FAILURES))
        try:
            print(json.dumps([np.asarray(step(kept)).tolist(), pathlib.Path("full").stat().st_size]))
        except (jax.errors.JaxRuntimeError, ValueError) as error:  # JAX's fast path raises the latter
            print(json.dumps([str(error).partition(":")[0], "\\n".join(error.__notes__)]))
    """
    with fake.serving(OTHER_PLATFORM_FULL=str(tmp_path / "full")):
        found, notes = fake.run(program.replace("FAILURES", str(failures)), **FAKE)
    if failures == 1:
        assert (found, notes) == ([2.0] * 3, 0)
    else:
        assert found == "RESOURCE_EXHAUSTED"
        assert "The daemon holds" in notes
        assert "4 KiB in 1 array" in notes
