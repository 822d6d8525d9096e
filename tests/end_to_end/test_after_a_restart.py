"""A daemon finds the programs of the one before in the same folder on the disk: nothing is traced again."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jitserver.store.disk import Store

PROGRAM = """
    import json, sys
    import jax, jax.numpy as jnp, numpy as np
    import jitclient
    from jax.experimental import io_callback

    @jitclient.jit
    def plain(x, y):
        return {"sum": x @ y, "both": (x, y + 1)}

    @jitclient.jit
    def eigen(x):
        return jnp.linalg.eigh(x @ x.T)

    @jitclient.jit
    def keys(key):
        return jax.random.split(key), jax.random.normal(key, (2,))

    @jitclient.jit
    def half(x):
        return x.astype(jnp.bfloat16) * 2

    @jitclient.jit(donate_argnums=0, static_argnums=1)
    def donated(x, n):
        return x * n

    @jitclient.jit
    def warned(x):
        return x.astype("float64") + 1

    @jitclient.jit
    def called_back(x):
        return jax.pure_callback(lambda v: v * 2, x, x)

    @jitclient.jit
    def in_order(x, key):
        parts = jnp.sort(x, axis=1), jnp.argsort(x, axis=0), jnp.median(x), jax.lax.top_k(x, 2), jnp.unique(x, size=4)
        return parts, jax.random.permutation(key, x.ravel())

    noted = []

    @jitclient.jit
    def changes(x):
        jax.debug.callback(lambda v: noted.append(float(v.sum())), x)
        jax.debug.callback(lambda v: noted.append(float(v.max())), x, ordered=True)
        return io_callback(lambda v: v * 3, x, x, ordered=True)

    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    given = jitclient.device_put(x)
    results = [
        plain(x, x.T), eigen(x), keys(jax.random.key(1)), half(x), donated(given, 3), warned(x), called_back(x),
        changes(x), in_order(x, jax.random.key(2)),
    ]
    flat = [str(np.asarray(jax.random.key_data(leaf) if leaf.dtype.name.startswith("key") else leaf).tolist())
            + str(leaf.dtype) + str(leaf.weak_type) for leaf in jax.tree.leaves(results)]
    print(json.dumps([*flat, given.is_deleted(), sorted(noted)]))
"""
FUNCTIONS = 9


@pytest.fixture(autouse=True)
def folder(own: Any) -> Path:
    """The folder of the cache of all daemons of a test."""
    path: Path = own.folder / "cache"
    path.mkdir(mode=0o700)
    own.env["JITSERVER_CACHE_DIR"] = str(path)
    return path


def blobs(folder: Path) -> list[Path]:
    return sorted(folder.glob("*/blobs/*/*"))


def executables(folder: Path) -> list[Path]:
    [catalog] = folder.glob("*/catalog.sqlite")
    with sqlite3.connect(catalog) as connection:
        digests = {digest for (digest,) in connection.execute("SELECT executable FROM programs")}
    connection.close()
    return [path for path in blobs(folder) if path.name in digests]


def forget_texts(folder: Path) -> None:
    """Delete JAX's own cache: a program that is found there by its text is not written as an executable again."""
    for path in folder.glob("*/compilations"):
        shutil.rmtree(path)


@pytest.mark.parametrize("options", [(), ("--no-prewarm",)], ids=["prewarmed", "loaded when asked for"])
def test_nothing_is_traced_again(own: Any, options: Any) -> None:
    with own.serving():
        first = own.run(PROGRAM, PYTHONWARNINGS="ignore")
        assert first[-1] == [5, 15]
        assert own.counts()["traces"] == FUNCTIONS
    with own.serving(*options):
        assert own.run(PROGRAM, PYTHONWARNINGS="ignore") == first
        after = own.counts()
    assert after["traces"] == after["captures_loaded"] == after["misses"] == 0
    assert after["restores"] == FUNCTIONS


ONE = """
    import json, sys
    import jitclient, numpy as np

    @jitclient.jit
    def f(x):
        return x * 2 + 1

    x = np.arange(3, dtype=np.float32)
    before = jitclient.explain(f, x)
    print(json.dumps([np.asarray(f(x)).tolist(), before.hit, before.level]))
"""


def test_explain_says_that_it_would_be_found(own: Any, cli: Callable[..., Any]) -> None:
    def shown() -> tuple[float, str]:
        env = {"JITSERVER_ADDRESS": own.address}
        [entry] = json.loads(cli("cache", "show", "f", "--json", env=env).stdout)
        return entry["loading"], cli("cache", "show", "f", env=env).stdout

    with own.serving():
        assert own.run(ONE) == [[1.0, 3.0, 5.0], False, None]
        loading, text = shown()
        assert (loading, "loaded in" in text) == (0, False)
    with own.serving("--no-prewarm"):
        assert own.run(ONE) == [[1.0, 3.0, 5.0], True, "L1"]
        assert (own.counts()["traces"], own.counts()["restores"]) == (0, 1)
        loading, text = shown()
        assert loading > 0
        assert "loaded in" in text


def test_a_daemon_that_was_killed_has_kept_what_was_written(own: Any, folder: Path, until: Callable[..., Any]) -> None:
    with own.serving() as daemon:
        own.run(ONE)
        until(lambda: len(blobs(folder)) == 2, "executable and capture to be written")
        until(lambda: list(folder.glob("*/catalog.sqlite")) and executables(folder), "the row")
        daemon.send_signal(signal.SIGKILL)
        daemon.wait()
    with own.serving():
        assert own.run(ONE)[0] == [1.0, 3.0, 5.0]
        assert own.counts()["traces"] == 0


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)


def foreign(path: Path) -> None:
    from jitserver.store import checked_files

    checked_files.write(path, [b"whole, and not the bytes of this name"])


@pytest.mark.parametrize("damage", [flip, foreign, Path.unlink], ids=lambda damage: damage.__name__)
def test_a_damaged_executable_is_made_again(own: Any, folder: Path, damage: Callable[[Path], None]) -> None:
    with own.serving():
        own.run(ONE)
    [executable] = executables(folder)
    damage(executable)
    forget_texts(folder)
    with own.serving():
        assert own.run(ONE)[0] == [1.0, 3.0, 5.0]
        assert own.counts()["traces"] == 1  # from the capture on the disk
    assert len(list(folder.glob("*/quarantine/*"))) == (damage is not Path.unlink)
    with own.serving():
        assert own.run(ONE)[0] == [1.0, 3.0, 5.0]
        assert own.counts()["traces"] == 0


CALLBACKS = """
    import json
    import jax, jitclient, numpy as np

    def doubled(x):
        return jax.pure_callback(lambda v: v * 2, x, x)

    @jitclient.jit
    def none(x):
        return x + 1

    @jitclient.jit
    def one(x):
        return doubled(x) + 1

    @jitclient.jit
    def two(x):
        return doubled(doubled(x)) + 1

    x = np.arange(3, dtype=np.float32)
    print(json.dumps([np.asarray(f(x)).tolist() for f in (none, one, two)]))
"""


def test_executables_with_another_number_of_callbacks_are_made_again(own: Any, folder: Path) -> None:
    right = [[1, 2, 3], [1, 3, 5], [1, 5, 9]]
    with own.serving():
        assert own.run(CALLBACKS) == right
    [catalog] = folder.glob("*/catalog.sqlite")
    with sqlite3.connect(catalog) as connection:
        of = dict(connection.execute("SELECT name, executable FROM programs"))
        for name, other in (("none", "one"), ("one", "two"), ("two", "none")):
            connection.execute("UPDATE programs SET executable = ? WHERE name = ?", (of[other], name))
    connection.close()
    forget_texts(folder)
    with own.serving():
        assert own.run(CALLBACKS) == right
        assert own.counts()["traces"] == 3
    with own.serving():
        assert own.run(CALLBACKS) == right
        assert (own.counts()["traces"], own.counts()["restores"]) == (0, 3)


def test_all_blobs_gone_is_an_ordinary_miss(own: Any, folder: Path) -> None:
    with own.serving():
        own.run(ONE)
    for path in folder.glob("*/blobs"):
        shutil.rmtree(path)
    with own.serving():
        assert own.run(ONE)[0] == [1.0, 3.0, 5.0]
        assert own.counts()["traces"] == 1


@pytest.mark.parametrize("row", ["process", "packages"])
def test_what_other_versions_or_another_processor_made_is_never_loaded(own: Any, folder: Path, row: str) -> None:
    """The disk is made to look as if the daemon that wrote it had been another."""
    script = f"""
        import sys
        from jitserver.programs import context, keys
        if {row!r} == "process":
            of_process = context.of_process()
            context.of_process = lambda: {{**of_process, "cpu": "another", "jaxlib": "0.0.1"}}
        else:
            context.packages().version = lambda name: "0.0.1"
        sys.argv = ["jitserver", "serve", "--address", {own.address!r}]
        from jitserver.cli import main
        main()
    """
    import textwrap

    old = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        env={**os.environ, "JITSERVER_CACHE_DIR": str(folder)},
        stderr=subprocess.DEVNULL,
    )
    try:
        from jitclient.wire.address import Address

        def answers() -> bool:
            try:
                Address.parse(own.address).connect().close()
            except ConnectionError:
                return False
            return True

        while not answers():
            assert old.poll() is None
        own.run(ONE)
    finally:
        old.send_signal(signal.SIGTERM)
        old.wait()
    assert len(executables(folder)) == 1
    with own.serving():
        assert own.run(ONE)[1] is False
        assert (own.counts()["traces"], own.counts()["restores"]) == (1, 0)


def test_other_settings_of_the_process_have_another_part_of_the_cache(own: Any, folder: Path) -> None:
    with own.serving():
        own.run(ONE)
    with own.serving(XLA_FLAGS="--xla_force_host_platform_device_count=2"):
        own.run(ONE)
        assert own.counts()["traces"] == 1
    assert len({path.name for path in folder.iterdir()} - {"daemons"}) == 2


SHARDED = """
    import json
    import jax, numpy as np, jitclient
    from jax.sharding import NamedSharding, PartitionSpec as P, SingleDeviceSharding

    mesh = jax.make_mesh((2,), ("a",))
    x = np.arange(4, dtype=np.float32)

    @jitclient.jit
    def f(x):
        return x * 2, x.sum()

    over = f(jax.device_put(x, NamedSharding(mesh, P("a"))))
    second = f(jax.device_put(x, SingleDeviceSharding(jax.devices()[1])))
    print(json.dumps([[np.asarray(leaf).tolist(), str(leaf.sharding)] for leaf in (*over, *second)]))
"""


def test_programs_over_several_devices(own: Any) -> None:
    two = "--xla_force_host_platform_device_count=2"
    with own.serving(XLA_FLAGS=two):
        first = own.run(SHARDED, XLA_FLAGS=two)
    with own.serving(XLA_FLAGS=two):
        assert own.run(SHARDED, XLA_FLAGS=two) == first
        assert (own.counts()["traces"], own.counts()["restores"]) == (0, 2)


def test_removed_programs_stay_removed(own: Any, folder: Path, cli: Callable[..., Any]) -> None:
    with own.serving():
        own.run(ONE)
    with own.serving():
        assert len(json.loads(cli("cache", "rm", "f", "--json", env={"JITSERVER_ADDRESS": own.address}).stdout)) == 1
        assert blobs(folder) == []
        assert json.loads(cli("cache", "ls", "--json", env={"JITSERVER_ADDRESS": own.address}).stdout) == []
        own.run(ONE)
        assert own.counts()["traces"] == 1


def test_a_cache_folder_that_cannot_be_used_is_one_warning(own: Any) -> None:
    (own.folder / "file").write_text("in the way")
    with own.serving(JITSERVER_CACHE_DIR=str(own.folder / "file" / "cache")):
        assert own.run(ONE)[0] == [1.0, 3.0, 5.0]


LONG = """
    import json, sys
    import jax, jax.numpy as jnp, jitclient, numpy as np

    SCALE = {scale}

    @jitclient.jit
    def f(x):
        for _ in range({steps}):
            x = jnp.tanh(x @ x) + jnp.linalg.inv(x)
        return x{tail}

    print(json.dumps(np.asarray(f(np.eye(4, dtype=np.float32))).tolist()))
"""


def test_another_function_of_the_same_text_is_traced_but_not_compiled(own: Any, folder: Path) -> None:
    with own.serving():
        first = own.run(LONG.format(scale=1, steps=60, tail=" * 1.0 if SCALE else x"))
        assert (own.counts()["compiles"], own.counts()["text_hits"]) == (1, 0)
    with own.serving():
        own.run(LONG.format(scale=2, steps=60, tail=" * 1.0 if SCALE else x"))
        found = own.counts()
        assert (found["traces"], found["compiles"], found["text_hits"]) == (1, 1, 1)
    assert len(executables(folder)) == 1, "both have the same file"
    forget_texts(folder)
    with own.serving("--no-prewarm"):
        assert own.run(LONG.format(scale=2, steps=60, tail=" * 1.0 if SCALE else x")) == first
        found = own.counts()
        assert (found["traces"], found["restores"], found["text_hits"]) == (0, 1, 0)
        own.run(LONG.format(scale=2, steps=60, tail=" * 2.0"))
        assert own.counts()["text_hits"] == 0


def test_the_report_says_which_program_had_to_be_made_again_and_why(own: Any, folder: Path, tmp_path: Path) -> None:
    source, why = LONG.format(scale=2, steps=60, tail=""), "XLA cannot serialize it"
    with own.serving():
        own.run(source)
    [catalog] = folder.glob("*/catalog.sqlite")
    store = Store(catalog.parent, 1 << 30)
    [info] = store.infos("f")
    stored = store.get(info.key)
    assert stored is not None
    stored.info.no_executable = why
    store.put(stored, b"", bytes(store.blob(stored.capture) or b""))
    store.close()
    forget_texts(folder)
    (tmp_path / "program.py").write_text(textwrap.dedent(source))
    command = [sys.executable, "-m", "jitclient", "--report", str(tmp_path / "program.py")]
    with own.serving("--no-prewarm"):
        done = subprocess.run(
            command, env={**os.environ, "JITSERVER_ADDRESS": own.address}, capture_output=True, text=True, check=True
        )
    [row] = [line for line in done.stderr.splitlines() if "f(f32[4,4])" in line]
    assert "made again in " in row
    assert row.endswith(f": {why}")
    assert "0 in memory, 0 on the disk; 0 made, 1 made again" in done.stderr


DIFFRAX = """
    import json
    import diffrax, jax, jax.numpy as jnp, jitclient, numpy as np

    @jitclient.jit
    def solve(y):
        term, steps = diffrax.ODETerm(lambda t, y, rate: -rate * y), diffrax.PIDController(1e-3, 1e-3)
        return diffrax.diffeqsolve(term, diffrax.Tsit5(), 0.0, 1.0, 0.1, y, 2.0, stepsize_controller=steps).ys

    print(json.dumps(np.asarray(solve(np.ones(2, np.float32))).tolist()))
"""


def test_a_solve_of_a_differential_equation_is_found(own: Any) -> None:
    pytest.importorskip("diffrax")
    with own.serving():
        first = own.run(DIFFRAX)
        assert own.counts()["compiles"] == 1
    with own.serving():
        assert own.run(DIFFRAX) == first
        after = own.counts()
    assert after["traces"] == after["captures_loaded"] == after["compiles"] == 0
    assert after["restores"] == 1


COMPILES_WHILE_TRACED = """
    import json
    import jax, jax.numpy as jnp, jitclient, numpy as np

    @jitclient.jit
    def f(x):
        with jax.ensure_compile_time_eval():
            scale = jnp.tanh(jnp.arange(3.0) + 0.5)
        return x * scale

    print(json.dumps(np.asarray(f(np.ones(3, np.float32))).shape))
"""


def test_what_the_cache_of_jax_reads_while_a_function_is_traced_is_no_input_of_it(own: Any) -> None:
    with own.serving():
        own.run(COMPILES_WHILE_TRACED)
        assert (own.counts()["traces"], own.counts()["client_traces"]) == (1, 0)


TWICE = """
    import json
    import jax, jitclient, numpy as np

    @jitclient.jit
    def quick(x):
        return x * 2 + 1

    @jitclient.jit
    def ends_by_its_data(x):
        return jax.lax.while_loop(lambda c: c.sum() < 100, lambda c: c * 2, x)

    x = np.ones(3, dtype=np.float32)
    print(json.dumps([np.asarray(f(x)).tolist() for f in (quick, ends_by_its_data) * 2]))
"""


def test_a_program_is_run_on_zeros_before_it_is_called_if_that_is_sure_to_end(
    own: Any, until: Callable[..., Any]
) -> None:
    with own.serving():
        first = own.run(TWICE)
        assert own.counts()["dry_runs"] == 0
    for _ in range(2):  # what was recorded stays
        with own.serving():
            until(lambda: own.counts()["dry_runs"], "a dry run")
            after = own.counts()
            assert (after["restores"], after["dry_runs"], after["calls"], after["hits"]) == (2, 1, 0, 0)
    with own.serving():
        assert own.run(TWICE) == first
    with own.serving("--no-prewarm"):
        assert (own.counts()["restores"], own.counts()["dry_runs"]) == (0, 0)


def test_a_dry_run_that_ends_the_daemon_is_the_last_of_its_program_which_is_called_as_ever(
    own: Any, folder: Path, until: Callable[..., Any]
) -> None:
    with own.serving():
        first = own.run(TWICE)
    crashes = f"""if True:
        import os, sys
        from jitserver.programs import prewarm
        prewarm._run_on_zeros = lambda program: os.abort()
        sys.argv = ["jitserver", "serve", "--address", {own.address!r}]
        from jitserver.cli import main
        main()
    """
    done = subprocess.run(
        [sys.executable, "-P", "-c", crashes],
        env={**os.environ, "JITSERVER_CACHE_DIR": str(folder)},
        stderr=subprocess.DEVNULL,
        timeout=60,
    )
    assert done.returncode == -signal.SIGABRT
    with own.serving():
        until(lambda: own.counts()["restores"] == 2, "both to be loaded")
        assert own.run(TWICE) == first
        after = own.counts()
        assert (after["dry_runs"], after["restores"], after["traces"]) == (0, 2, 0)
