"""Compilations of a process's own jax are found by the next one, and no damage to the cache reaches a program."""

import inspect
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jitclient.jaxside import compilation_cache, internals
from jitclient.jaxside.compilation_cache import CompilationCache

PROGRAM = """
    import json
    import sys
    import warnings
    warnings.simplefilter("error")
    import jax
    import jax.numpy as jnp
    from jitclient.jaxside import compilation_cache

    compilation_cache.keep_compilations()
    exec(sys.argv[1] if len(sys.argv) > 1 else "")
    values = [jnp.sort(jnp.sin(jnp.arange(40.0)))[3], jnp.linalg.norm(jnp.ones((3, 3)))]
    cache = compilation_cache.own()
    counts = [cache.found, cache.compiled] if cache else None
    print(json.dumps([counts, [float(value) for value in values], jax.config.jax_compilation_cache_dir]))
"""

Run = Callable[..., Any]


@pytest.fixture
def run(run_script: Run, short_path: Path) -> Run:
    """Runs the program with a cache of the test's own; there is no daemon, and it needs none."""

    def run(*arguments: str, **env: str) -> Any:
        return run_script(PROGRAM, *arguments, env={"JITSERVER_CACHE_DIR": str(short_path / "cache"), **env})

    return run


def _files(short_path: Path) -> list[Path]:
    return sorted((short_path / "cache").glob("*/compilations/*"))


def test_a_second_process_compiles_nothing(run: Run, short_path: Path) -> None:
    (found, compiled), values, configured = run()
    assert found == 0
    assert compiled > 0
    assert configured is None
    assert len(_files(short_path)) == compiled
    assert run() == [[compiled, 0], values, None]


def test_damaged_files_are_replaced_without_a_warning(run: Run, short_path: Path) -> None:
    (_, compiled), values, _ = run()
    first, second, *others = _files(short_path)
    first.write_bytes(b"")
    second.write_bytes(others[0].read_bytes())
    others[0].write_bytes(others[0].read_bytes()[:-1])
    others[1].unlink()
    others[1].mkdir()
    assert run() == [[compiled - 4, 4], values, None]
    assert run() == [[compiled - 1, 1], values, None], "a directory in the place of a file stays there"


def test_a_directory_that_cannot_be_used_costs_nothing_but_time(run: Run, short_path: Path) -> None:
    (_, compiled), values, _ = run()
    directory = _files(short_path)[0].parent
    for file in _files(short_path):
        file.unlink()
    directory.rmdir()
    directory.touch()
    assert run() == [[0, compiled], values, None]
    (short_path / "file").touch()
    assert run(JITSERVER_CACHE_DIR=str(short_path / "file")) == [None, values, None]


def test_a_user_who_has_a_cache_keeps_it(run: Run, short_path: Path) -> None:
    theirs = short_path / "theirs"
    environment = {"JAX_COMPILATION_CACHE_DIR": str(theirs), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    assert run(**environment)[0] == [0, 0]
    assert _files(short_path) == []
    assert any(theirs.iterdir())


def test_a_cache_configured_after_the_first_compilation_is_used(run: Run, short_path: Path) -> None:
    theirs = short_path / "theirs"
    configure = (
        f"jnp.ones(3) + 1; jax.config.update('jax_compilation_cache_dir', {str(theirs)!r});"
        "jax.config.update('jax_persistent_cache_min_compile_time_secs', 0)"
    )
    run(configure)
    ours = len(_files(short_path))
    assert 0 < ours < len(list(theirs.glob("*-cache"))), "what came before is ours, and what comes after theirs"


SERIALIZES = """
from jax.experimental import serialize_executable
compiled = jax.jit(lambda x: jnp.tanh(x) @ x).lower(jnp.ones((8, 8))).compile()
loaded = serialize_executable.deserialize_and_load(*serialize_executable.serialize(compiled))
assert loaded(jnp.ones((8, 8))).shape == (8, 8)
"""


def test_a_program_that_serializes_executables_compiles_them(run: Run) -> None:
    (found, compiled), *_ = run(SERIALIZES)
    assert run(SERIALIZES)[0] == [found, compiled] == [0, compiled]


PARTITIONS = """
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import Mesh, NamedSharding, PartitionSpec

factor = float(sys.argv[2])
scaled = custom_partitioning(lambda x: x)
scaled.def_partition(
    infer_sharding_from_operands=lambda mesh, arguments, result: arguments[0].sharding,
    partition=lambda mesh, arguments, result: (
        mesh, lambda x: x * factor, arguments[0].sharding, (arguments[0].sharding,)
    ),
    sharding_rule="i -> i",
)
x = jax.device_put(jnp.ones(8), NamedSharding(Mesh(jax.devices(), ("d",)), PartitionSpec("d")))
found = float(jax.jit(scaled)(x)[0])
assert found == factor, found
"""


def test_functions_that_partition_programs_count(run: Run) -> None:
    # With the second, jax's key does not even have the function's id.
    env = {
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
        "JAX_REMOVE_CUSTOM_PARTITIONING_PTR_FROM_CACHE_KEY": "1",
    }
    run(PARTITIONS, "3", **env)
    run(PARTITIONS, "5", **env)


def test_a_program_that_replaces_the_compiler_keeps_to_itself(run: Run, short_path: Path) -> None:
    patch = "from jax._src import compiler; old = compiler.backend_compile_and_load;"
    (found, compiled), *_ = run(f"{patch} compiler.backend_compile_and_load = lambda *a, **k: old(*a, **k)")
    assert found == 0
    assert compiled > 0
    assert _files(short_path) == []


def test_a_program_whose_compilations_are_dumped_compiles_them(run: Run, short_path: Path) -> None:
    def dumped(name: str) -> set[str]:
        run(XLA_FLAGS=f"--xla_dump_to={short_path}/{name} --xla_dump_hlo_as_text")
        return {path.name.partition(".")[2] for path in (short_path / name).iterdir()}

    assert dumped("first") == dumped("second") != set()


def test_processes_that_start_at_once_share_it(run: Run, short_path: Path) -> None:
    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda _: run(), range(4)))
    assert len({str(values) for _, values, _ in answers}) == 1
    counts = run()[0]
    assert counts == [len(_files(short_path)), 0]


def test_what_is_stored_is_found_under_its_key_alone(tmp_path: Path) -> None:
    cache = CompilationCache(tmp_path / "made")
    assert cache.get("key") is None
    cache.put("key", b"executable")
    assert cache.get("key") == b"executable"
    [file] = (tmp_path / "made").iterdir()
    file.rename(file.with_name(file.name.replace("key", "other")))
    assert cache.get("other") is None


def test_compilations_below_the_minimum_are_not_stored() -> None:
    cache = CompilationCache(Path(os.devnull), min_seconds=0.5)
    assert [cache.count_compiled(0.4), cache.count_compiled(0.5)] == [False, True]
    assert cache.compiled == 2


def test_the_directory_stays_below_its_maximum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilation_cache, "_PUTS_PER_TRIM", 4)
    cache = CompilationCache(tmp_path, max_bytes=2500)
    for number in range(9):
        cache.put(f"{number}", bytes(1000))
        os.utime(next(tmp_path.glob(f"*-{number}")), (number, number))
    assert sorted(path.name[-1] for path in tmp_path.iterdir()) == ["7", "8"]


@pytest.mark.parametrize("name", ["_cache_read", "_cache_write", "_get_cache", "put_executable_and_time"])
def test_a_jax_with_other_internals_keeps_its_own(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from jax._src import compilation_cache as caches
    from jax._src import compiler

    module = compiler if hasattr(compiler, name) else caches
    monkeypatch.setattr(module, name, lambda other: other)
    before = [inspect.getattr_static(compiler, "_cache_read"), compiler._cache_write, caches._get_cache]
    cache: Any = SimpleNamespace()
    assert not internals.use_compilation_cache(cache)
    assert [inspect.getattr_static(compiler, "_cache_read"), compiler._cache_write, caches._get_cache] == before
