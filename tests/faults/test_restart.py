"""Planned restarts: programs that are under way notice nothing but a pause, and nothing of theirs runs twice."""

import functools
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jitclient
from jitclient import errors
from jitclient.wire.address import Address

EXACT = """
    import pathlib
    import jax, jax.numpy as jnp

    @jitclient.jit(donate_argnums=0)
    def step(state, x):
        return {"w": state["w"] * 3 + x, "n": state["n"] + 1}, state["w"].sum()

    @jitclient.jit
    def mixed(w, x):
        return (w ^ x) + 5

    x = np.arange(1000, dtype=np.uint32)
    state = jitclient.device_put({"w": np.ones(1000, np.uint32), "n": np.uint32(0)})
    kept = jitclient.device_put(np.full((300, 300), 7, np.uint32))
    want, count = np.ones(1000, np.uint32), 0
    here = {"w": want, "n": np.uint32(0)}
"""

ON_THE_DAEMON = """
    from jitclient.calls import moved_in

    moved_in._FIRST_CALLS = 10**9  # programs stay on the daemon, as on an accelerator
"""

LOOP = (
    ON_THE_DAEMON
    + EXACT
    + """
    print("ready")
    while pathlib.Path("GO").exists():
        state, total = step(state, x)
        other = mixed(state["w"], x)
        last, want, count = want, want * np.uint32(3) + x, count + 1
        if count % 7 == 0:
            assert int(total) == int(last.sum(dtype=np.uint32)), count
        if count % 11 == 0:
            assert (np.asarray(other) == (want ^ x) + np.uint32(5)).all(), count
        if count % 13 == 0:  # by value, there and back
            assert (np.asarray(mixed(want, x)) == (want ^ x) + np.uint32(5)).all(), count
        if count % 17 == 0:
            big = jitclient.device_put(np.full((200, 300), count, np.uint32))
            assert np.asarray(big)[5, 7] == count
    assert int(state["n"]) == count
    assert (np.asarray(state["w"]) == want).all()
    assert (np.asarray(kept) == 7).all()
    print("same")
"""
)


@pytest.fixture
def restart(cli: Any) -> Any:
    """`jitserver restart` for a daemon; returns the new one's process id."""

    def command(daemon: Any, **env: str) -> int:
        done = cli("restart", "--json", env={"JITSERVER_ADDRESS": daemon.address, **env})
        assert done.returncode == 0, done.stderr
        pid: int = json.loads(done.stdout)["pid"]
        return pid

    return command


@pytest.fixture
def go(tmp_path: Path) -> Path:
    """A file that is there as long as programs are to go on."""
    path = tmp_path / "go"
    path.touch()
    return path


@pytest.fixture
def serve(serve: Any) -> Any:
    """Starts a daemon whose cache is that of the test, where those that follow it look too."""
    return functools.partial(serve, JITSERVER_CACHE_DIR=os.environ["JITSERVER_CACHE_DIR"])


def left(kind: str = "*") -> list[Path]:
    """Return the files that lie on the disk for the next daemon: `arrays`, and `manifests`."""
    return list(Path(os.environ["JITSERVER_CACHE_DIR"]).glob(f"*/checkpoint/*/{kind}/*"))


def is_looping(daemon: Any, client: Any) -> bool:
    """Whether the daemon has made calls of a client, which must be alive."""
    assert client.process.poll() is None, client.process.communicate()[1]
    return bool(daemon.counts().calls > 50)


@pytest.mark.slow
@pytest.mark.parametrize("autostart", ["0", "1"])
def test_a_loop_on_resident_and_donated_arrays_goes_on_through_restarts(
    serve: Any, start_client: Any, restart: Any, until: Any, go: Path, autostart: str
) -> None:
    with serve() as daemon:
        client = start_client(daemon, LOOP.replace("GO", str(go)), JITSERVER_AUTOSTART=autostart)
        client.says("ready")
        pids = {daemon.process.pid}
        for _ in range(3):
            until(lambda: is_looping(daemon, client), "the loop to be under way")
            pids.add(restart(daemon))
        assert len(pids) == 4
        until(lambda: is_looping(daemon, client), "the loop to be under way")
        go.unlink()
        client.says("same")
        said = client.ends()
        assert "Warning" not in said
        until(lambda: daemon.counts().sessions == 0, "the session to end")
        counts = daemon.counts()
        assert (counts.arrays, counts.local_runs, counts.client_traces) == (0, 0, 0)
        assert left() == []


SLOW = """
    import jax

    def wait(x):
        import pathlib, time
        while pathlib.Path("GATE").exists():
            time.sleep(0.01)
        return x

    @jitclient.jit(donate_argnums=0)
    def slow(x):
        return jax.pure_callback(wait, jax.ShapeDtypeStruct((1000,), "float32"), x) + 1

    @jitclient.jit
    def quick(x):
        return x * 2

    held = quick(np.ones(1000, np.float32))
"""


@pytest.mark.callbacks
def test_a_running_call_ends_first_and_its_result_is_there(
    serve: Any, start_client: Any, until: Any, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    source = (
        SLOW.replace("GATE", str(gate))
        + """
    print("ready")
    made = slow(held)
    print(float(np.asarray(made)[0]))
    print(float(np.asarray(quick(made))[0]))
"""
    )
    with serve() as daemon:
        client = start_client(daemon, source)
        client.says("ready")
        until(lambda: daemon.counts().calls > 1, "the call to be under way")
        restarting = subprocess.Popen(
            [sys.executable, "-P", "-m", "jitserver", "restart"],
            env={**os.environ, "JITSERVER_ADDRESS": daemon.address},
            stdout=subprocess.DEVNULL,
        )
        until(lambda: not daemon.path.exists(), "the door to close")
        assert daemon.process.poll() is None
        gate.unlink()
        assert restarting.wait(60) == 0
        client.says("3.0", "6.0")
        client.ends()


PRINTS = """
    import jax

    @jitclient.jit
    def traced(x):
        print("traced with", x.shape)
        jax.debug.print("ran")
        return x + 1

    x = np.ones(3, np.float32)
    traced(x), traced(x), traced(np.ones(2, np.float32))
    print("ready")
    sys.stdin.readline()
    traced(x), traced(np.ones(2, np.float32)), traced(np.ones(1, np.float32))
    print("over")
"""


def test_what_a_trace_prints_is_printed_only_where_the_program_was_new_also_after_a_restart(
    serve: Any, start_client: Any, restart: Any
) -> None:
    first_calls = ["traced with (3,)", "ran", "ran", "traced with (2,)", "ran", "ready"]
    with serve() as daemon:
        client = start_client(daemon, PRINTS)
        client.says(*first_calls)
        restart(daemon)
        client.goes_on()
        client.says("ran", "ran", "traced with (1,)", "ran", "over")
        client.ends()
        counts = daemon.counts()
        assert (counts.traces, counts.restores) == (1, 2)  # that of (1,) is new
        other = start_client(daemon, PRINTS)
        other.says("ran", "ran", "ran", "ready")
        other.goes_on()
        other.says("ran", "ran", "ran", "over")
        other.ends()
        assert daemon.counts().traces == 1


def test_what_takes_longer_than_the_drain_is_lost_and_the_rest_is_not(
    serve: Any, start_client: Any, restart: Any, until: Any, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    source = (
        SLOW.replace("GATE", str(gate))
        + """
    other = quick(held)
    print("ready")
    try:
        slow(held)
    except errors.DaemonLost as error:  # it may have run, and took its argument
        print("lost")
    print(float(np.asarray(other)[0]))
"""
    )
    with serve("--drain", "0.2") as daemon:
        client = start_client(daemon, source)
        client.says("ready")
        until(lambda: daemon.counts().calls > 2, "the call to be under way")
        restart(daemon)
        gate.unlink()
        client.says("lost", "4.0")
        client.ends()


def test_after_a_plain_kill_the_next_call_starts_a_daemon_which_has_the_arrays(
    serve: Any, start_client: Any, until: Any
) -> None:
    source = (
        EXACT
        + """
    print("ready")
    sys.stdin.readline()
    state, _ = step(state, x)
    assert (np.asarray(state["w"]) == want * np.uint32(3) + x).all()
    assert (np.asarray(kept) == 7).all()
    print("same")
"""
    )
    with serve() as daemon:
        client = start_client(daemon, source, JITSERVER_AUTOSTART="1")
        client.says("ready")
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.process.wait(60) == 0
        assert len(left("manifests")) == 1
        client.goes_on()
        client.says("same")
        assert client.ends().count("started a daemon") == 1
        assert left() == []


def test_a_program_that_looks_only_after_a_restart_finds_its_arrays(
    serve: Any, start_client: Any, restart: Any
) -> None:
    source = (
        EXACT
        + """
    compiled = mixed.lower(kept, kept).compile()
    print("ready")
    sys.stdin.readline()
    assert (np.asarray(kept) == 7).all()
    assert (np.asarray(compiled(kept, kept)) == 5).all()
    assert [device.platform for device in jitclient.devices()] == ["cpu"]
    print(int(state["n"]))
    sys.stdin.readline()
    assert jitclient.device_put(np.arange(3))[1] == 1
    sys.stdin.readline()
    y = mixed(kept, kept)
    while not y.is_ready():
        time.sleep(0.01)
    print(int(np.asarray(y)[0, 0]))
"""
    )
    with serve() as daemon:
        client = start_client(daemon, source)
        client.says("ready")
        restart(daemon)
        client.goes_on()
        client.says("0")
        restart(daemon)
        client.goes_on()
        restart(daemon)
        client.goes_on()
        client.says("5")
        client.ends()


LOST = (
    EXACT
    + """
    print("ready")
    sys.stdin.readline()
    for use in (lambda: np.asarray(kept), lambda: mixed(kept, kept)):
        try:
            use()
        except errors.ArrayLost as error:
            assert os.environ["WHY"] in str(error), error
            print("lost")
    print(int(mixed(np.uint32(1), np.uint32(1))))
"""
)
"""A client whose arrays are lost when it looks."""


def test_a_stop_ends_the_sessions_and_their_handles_say_so(serve: Any, start_client: Any, cli: Any) -> None:
    with serve() as daemon:
        client = start_client(daemon, LOST, JITSERVER_AUTOSTART="1", WHY="the daemon exited")
        client.says("ready")
        assert cli("stop", env={"JITSERVER_ADDRESS": daemon.address}).returncode == 0
        assert left() == []
        client.goes_on()
        client.says("lost", "lost", "5")
        client.ends()


def test_a_damaged_file_is_a_lost_session_whose_handles_say_why(serve: Any, start_client: Any) -> None:
    with serve() as daemon:
        client = start_client(daemon, LOST, JITSERVER_AUTOSTART="1", WHY="damaged")
        client.says("ready")
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.process.wait(60) == 0
        [path] = left("manifests")
        path.write_bytes(path.read_bytes()[:-9])
        client.goes_on()
        client.says("lost", "lost", "5")
        client.ends()


def test_forked_children_find_what_they_share(serve: Any, start_client: Any, restart: Any) -> None:
    source = (
        EXACT
        + """
    read, write = os.pipe()
    child = os.fork()
    if not child:
        assert (np.asarray(kept) == 7).all()
        own = mixed(kept, kept)
        print("child ready")
        os.read(read, 1)
        assert (np.asarray(kept) == 7).all()
        assert (np.asarray(mixed(own, kept)) == (5 ^ 7) + 5).all()
        print("child same")
        os._exit(0)
    sys.stdin.readline()
    state, _ = step(state, x)
    assert (np.asarray(state["w"]) == want * np.uint32(3) + x).all()
    os.write(write, b".")
    assert os.waitpid(child, 0)[1] == 0
    assert (np.asarray(kept) == 7).all()
    print("same")
"""
    )
    with serve() as daemon:
        client = start_client(daemon, source)
        client.says("child ready")
        restart(daemon)
        client.goes_on()
        client.says("child same", "same")
        client.ends()


def test_every_kind_of_array_comes_back(serve: Any, start_client: Any, restart: Any) -> None:
    source = """
    import jax, jax.numpy as jnp, ml_dtypes
    jax.config.update("jax_enable_x64", True)
    names = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128"
    names += " bfloat16 float8_e4m3fn float8_e5m2 int4 uint4"
    values = {name: np.arange(6).reshape(2, 3).astype(jnp.dtype(name)) for name in names.split()}
    held = jitclient.device_put(values)
    keys = jitclient.jit(lambda: jax.random.split(jax.random.key(3), 4))()
    weak = jitclient.jit(lambda: 2.5)()
    mesh = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    place = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    add = jitclient.jit(lambda x: x + 1, in_shardings=place, out_shardings=place)
    spread = add(np.arange(4096.0))
    second = jitclient.device_put(np.ones(3), jax.devices()[1])
    stay = jitclient.jit(lambda x: x)
    draw = jitclient.jit(lambda key: jax.random.normal(key, (3,)))
    before = np.asarray(draw(keys[1]))
    print("ready")
    sys.stdin.readline()
    for name, value in values.items():
        assert np.asarray(held[name]).tobytes() == value.tobytes(), name
        assert held[name].dtype == value.dtype
    assert (np.asarray(draw(keys[1])) == before).all()
    assert weak.weak_type and (weak + np.float16(1)).dtype == np.float16
    assert (np.asarray(add(spread)) == np.arange(4096.0) + 2).all()
    assert stay(spread).sharding == spread.sharding == place
    assert stay(second).devices() == second.devices() == {jax.devices()[1]}
    print("same")
"""
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    with serve(**flags) as daemon:
        client = start_client(daemon, source, **flags)
        client.says("ready")
        restart(daemon, **flags)
        client.goes_on()
        client.says("same")
        client.ends()


def test_what_a_program_keeps_and_holds_is_there_once(serve: Any, start_client: Any, restart: Any, cli: Any) -> None:
    source = """
    data = jitclient.keep("data", {"x": np.arange(1000, dtype=np.float32)})
    total = jitclient.jit(lambda x: x.sum())
    for turn in range(3):
        assert float(total(data["x"])) == float(total(jitclient.kept("data")["x"])) == 499500
        print("right")
        sys.stdin.readline()
"""
    with serve() as daemon:
        client = start_client(daemon, source)
        for turn in range(3):
            client.says("right")
            done = cli("arrays", "ls", "--json", env={"JITSERVER_ADDRESS": daemon.address})
            held = json.loads(done.stdout)
            assert [tree["nbytes"] for tree in held["kept"]] == [4000]
            assert sum(session["nbytes"] for session in held["sessions"]) < 4000
            if turn < 2:
                restart(daemon)
            client.goes_on()
        client.ends()


def test_what_is_kept_stays_where_another_name_was_forgotten_between_restarts(
    serve: Any, start_client: Any, restart: Any, cli: Any
) -> None:
    source = """
    held = [jitclient.keep(name, np.arange(n, dtype=np.float32)) for name, n in [("goes", 5), ("stays", 7)]]
    print("kept")
    sys.stdin.readline()
    print(jitclient.kept("stays").tolist() == held[1].tolist() == list(range(7)), held[0].tolist() == list(range(5)))
    sys.stdin.readline()
"""
    with serve() as daemon:
        client = start_client(daemon, source)
        client.says("kept")
        restart(daemon)
        assert cli("arrays", "rm", "goes", env={"JITSERVER_ADDRESS": daemon.address}).returncode == 0
        restart(daemon)
        client.goes_on()
        client.says("True True")
        client.ends()


def test_a_restart_that_cannot_save_what_is_kept_says_so(serve: Any, cli: Any, client_of: Any) -> None:
    with serve() as daemon:
        env = {"JITSERVER_ADDRESS": daemon.address}
        with client_of(daemon.address):
            jitclient.keep("gone", np.arange(3))
        [folder] = Path(os.environ["JITSERVER_CACHE_DIR"]).glob("*/checkpoint/*/arrays")
        folder.rmdir()
        folder.touch()  # where no array can be written
        done = cli("restart", "--json", env=env)
        assert done.returncode == 1
        assert json.loads(done.stdout)["lost"] == ["gone"]
        assert "gone: these named arrays are lost" in done.stderr
        assert cli("restart", "--json", env=env).returncode == 0  # nothing more is lost


def test_what_a_full_disk_had_no_room_for_says_so(serve: Any, cli: Any, client_of: Any) -> None:
    with serve() as daemon:
        env = {"JITSERVER_ADDRESS": daemon.address}
        with client_of(daemon.address):
            jitclient.keep("gone", np.arange(3))
        resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (0, 0))
        assert json.loads(cli("restart", "--json", env=env).stdout)["lost"] == ["gone"]
        with client_of(daemon.address), pytest.raises(errors.ArrayLost, match=r"'gone' are lost: .*disk was full"):
            jitclient.kept("gone")
        assert "the disk was full" in cli("arrays", "ls", env=env).stdout


def test_what_is_kept_and_cannot_be_read_says_why_until_it_is_kept_again(
    serve: Any, restart: Any, cli: Any, client_of: Any
) -> None:
    with serve() as daemon:
        env = {"JITSERVER_ADDRESS": daemon.address}
        with client_of(daemon.address):
            jitclient.keep("whole", np.arange(3))
            jitclient.keep("gone", np.arange(50_000))
        restart(daemon)
        assert "195 KiB on the disk" in cli("arrays", "ls", env=env).stdout
        max(left("arrays"), key=lambda path: path.stat().st_size).write_bytes(b"damaged")
        assert (daemon.counts().names, daemon.counts().lost_names) == (2, ())
        for _ in range(2):
            with client_of(daemon.address):
                assert jitclient.kept("whole").tolist() == [0, 1, 2]
                with pytest.raises(errors.ArrayLost, match=r"'gone' are lost: .*wrong checksum"):
                    jitclient.kept("gone")
            assert (daemon.counts().names, daemon.counts().lost_names) == (1, ("gone",))
            restart(daemon)
        assert "lost: 'gone'" in cli("status", env=env).stdout
        assert "wrong checksum" in cli("arrays", "ls", env=env).stdout
        with client_of(daemon.address):
            assert jitclient.keep("gone", lambda: np.arange(2)).tolist() == [0, 1]
            assert jitclient.kept("gone").tolist() == [0, 1]
        assert daemon.counts().lost_names == ()


def test_a_client_that_dies_after_it_before_it_came_back_leaves_nothing(
    serve: Any, start_client: Any, restart: Any, at_once: Any
) -> None:
    with serve() as daemon:
        client = start_client(daemon, EXACT + "    print('ready')\n    signal.pause()")
        client.says("ready")
        restart(daemon)
        assert daemon.counts().sessions == 1
        client.kill()
        client.process.wait()
        at_once(lambda: daemon.counts().sessions == 0, "the session to end")
        at_once(lambda: left() == [], "its files to go")


def upgrade(site: Path, version: str, factor: int) -> None:
    """Change the files of a small package like `pip install --target SITE --upgrade`."""
    package, metadata = site / "upgraded", site / f"upgraded-{version}.dist-info"
    for old in site.glob("upgraded-*"):
        shutil.rmtree(old)
    package.mkdir(parents=True, exist_ok=True)
    metadata.mkdir()
    (package / "__init__.py").write_text(f"def scaled(x):\n    return x * {factor}\n")
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: upgraded\nVersion: {version}\n")
    (metadata / "RECORD").write_text(f"upgraded/__init__.py,,\nupgraded-{version}.dist-info/METADATA,,\n")


def test_an_upgrade_is_a_pause_too_whoever_may_start_daemons(
    serve: Any, start_client: Any, short_path: Path, until: Any
) -> None:
    site = short_path / "site-packages"
    source = """
    import upgraded

    @jitclient.jit
    def fun(x):
        return upgraded.scaled(x)

    held = jitclient.device_put(np.ones(1000, np.float32))
    print(float(fun(np.float32(1))))
    made = fun(held)
    print(float(np.asarray(made)[0]))
    sys.stdin.readline()
    print(float(np.asarray(fun(np.ones(5, np.float32)))[0]))
    print(float(np.asarray(fun(held))[0]), float(np.asarray(made)[0]))
"""
    upgrade(site, "1.0", 2)
    with serve(PYTHONPATH=str(site)) as daemon:
        client = start_client(daemon, source, PYTHONPATH=str(site))
        client.says("2.0", "2.0")
        upgrade(site, "1.1", 3)
        client.goes_on()
        client.says("2.0", "2.0 2.0")  # as under `jax.jit`: it has the package of before the upgrade
        client.ends()
        other = start_client(daemon, source, PYTHONPATH=str(site))
        other.says("3.0", "3.0")
        other.goes_on()
        other.says("3.0", "3.0 3.0")
        other.ends()
        assert daemon.counts().pid == daemon.process.pid, "it became another program, as the same process"
        assert daemon.pids() == [daemon.process.pid]


def test_queued_calls_with_large_arguments_come_out_right(serve: Any, start_client: Any, restart: Any) -> None:
    source = (
        ON_THE_DAEMON
        + """
    @jitclient.jit
    def add(state, batch):
        return state + batch.sum()

    state, want = jitclient.device_put(np.uint32(0)), 0
    batch = np.zeros((256, 256), np.uint32)
    print("ready")
    sys.stdin.readline()
    for n in range(2000):
        batch[3, 4] = n  # what was called with is what counts
        state = add(state, batch)
        want += n
        if n == 200:
            print("under way")
    assert int(state) == want, (int(state), want)
    print("same")
"""
    )
    for options in ((), ("--shared-memory", "0")):
        with serve(*options) as daemon:
            client = start_client(daemon, source)
            client.says("ready")
            client.goes_on()
            client.says("under way")
            restart(daemon)
            client.says("same")
            client.ends()


@pytest.mark.parametrize("content", ["", "garbage"], ids=["empty, as on a full disk", "garbage"])
def test_a_daemon_whose_lock_file_names_no_process_is_stopped_by_name(serve: Any, cli: Any, content: str) -> None:
    with serve() as daemon:
        Address.parse(daemon.address).lock_path.write_text(content)
        told = cli("stop", "--json", env={"JITSERVER_ADDRESS": daemon.address})
        assert json.loads(told.stdout)["pid"] == daemon.process.pid
