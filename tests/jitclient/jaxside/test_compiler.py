"""The hook in JAX's compiler shows in nothing but the time that a program takes."""

import ctypes
import inspect
import os
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jitclient.jaxside import compiler as hook

HEADER = """
    import json, os, sys
    from jitclient.jaxside import compilation_cache, own_jax
    own_jax.configure()
"""
FOOTER = """
    cache = compilation_cache.own()
    print(json.dumps([result, [cache.found, cache.compiled] if cache else [0, 0]]))
"""

Run = Callable[..., Any]


@pytest.fixture
def run(run_script: Run, short_path: Path) -> Run:
    """Runs a program, which binds `result`, with a cache of the test's own, and returns the result and the counts."""

    def run(program: str, *arguments: str, **env: str) -> Any:
        env = {"JITSERVER_CACHE_DIR": str(short_path / "cache"), **env}
        return run_script(HEADER + program + FOOTER, *arguments, env=env)

    return run


OBSERVED = {
    "log lines and events": """
    import logging, re
    import jax, jax.numpy as jnp
    events, lines = [], []
    jax.monitoring.register_event_listener(lambda event, **_: events.append(event))
    jax.monitoring.register_event_duration_secs_listener(lambda event, *_, **__: events.append(event))
    class Handler(logging.Handler):
        def emit(self, record):
            lines.append((record.levelname, re.sub(r"[0-9.]+", "", record.getMessage())))
    for name in ("compiler", "compilation_cache", "dispatch"):
        logging.getLogger(f"jax._src.{name}").addHandler(Handler())
        logging.getLogger(f"jax._src.{name}").setLevel("DEBUG")
    with jax.log_compiles():
        jax.jit(lambda x: jnp.sin(x) * 2)(3.0)
    result = [events, lines]
    """,
    "files that are opened": """
    from unittest import mock
    import jax.numpy as jnp
    before = os.listdir("/proc/self/fd")
    with mock.patch("builtins.open", mock.mock_open()) as opened, mock.patch("os.open") as by_number:
        jnp.tanh(jnp.ones(7))
    result = [opened.call_count, by_number.call_count, len(os.listdir("/proc/self/fd")) - len(before)]
    """,
    "warnings about encodings": """
    import warnings
    warnings.simplefilter("error", EncodingWarning)
    import jax.numpy as jnp
    result = float(jnp.sin(jnp.ones(3))[0])
    """,
    "PGLE": """
    import warnings
    import jax, jax.numpy as jnp
    jax.config.update("jax_compilation_cache_expect_pgle", True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        jax.jit(lambda x: jnp.sin(x) * 2)(3.0)
    result = [str(warning.message) for warning in caught]
    """,
    "dumps by an option": """
    import tempfile
    import jax, jax.numpy as jnp
    with tempfile.TemporaryDirectory() as folder:
        options = {"xla_dump_to": folder, "xla_dump_hlo_as_text": True}
        jax.jit(lambda x: jnp.tanh(x) * 3, compiler_options=options)(3.0)
        result = len(os.listdir(folder)) > 0
    """,
    "dumps by a variable that is deleted": """
    import tempfile
    import jax, jax.numpy as jnp
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XLA_FLAGS"] = f"--xla_dump_to={folder} --xla_dump_hlo_as_text"
        jax.devices()
        del os.environ["XLA_FLAGS"]
        jax.jit(lambda x: jnp.tanh(x) * 3)(3.0)
        result = len(os.listdir(folder)) > 0
    """,
    "dumps by a file of flags": """
    import tempfile
    import jax, jax.numpy as jnp
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/flags", "w", encoding="utf-8") as file:
            file.write(f"--xla_dump_to={folder}/dump --xla_dump_hlo_as_text")
        os.environ["XLA_FLAGS"] = f"{folder}/flags"
        jax.jit(lambda x: jnp.tanh(x) * 3)(3.0)
        result = len(os.listdir(f"{folder}/dump")) > 0
    """,
    "a cache of the user's own": """
    import jax, jax.numpy as jnp
    from jax._src import compilation_cache as caches
    from jax._src.compilation_cache_interface import CacheInterface
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    class Mine(CacheInterface):
        _path = None
        def __init__(self):
            self.found = {}
        def get(self, key):
            return self.found.get(key)
        def put(self, key, value):
            self.found[key] = value
    caches._cache, caches._cache_initialized = Mine(), True
    jax.jit(lambda x: jnp.tanh(x) * 3)(3.0)
    result = len(caches._cache.found)
    """,
    "a compiled object": """
    import hashlib
    import jax, jax.numpy as jnp
    def save(compiled):
        from jax.experimental.serialize_executable import serialize
        return serialize(compiled)
    def load(saved):
        from jax.experimental.serialize_executable import deserialize_and_load
        return deserialize_and_load(*saved)
    f, x = jax.jit(lambda x: jnp.linalg.eigh(jnp.tanh(x) @ x)[0]), jnp.ones((4, 4))
    ahead = f.lower(x).compile()
    called = jax.jit(lambda x: jnp.tanh(x) @ x)
    called(x)
    after = called.lower(x).compile()
    result = [
        float(load(save(ahead))(x)[3]), float(load(save(after))(x)[0, 0]), float(called(x)[0, 0]),
        ahead.as_text(), after.as_text(), str(ahead.memory_analysis()),
    ]
    """,
}


@pytest.mark.slow
@pytest.mark.parametrize("program", OBSERVED.values(), ids=OBSERVED)
def test_a_program_cannot_tell(run: Run, program: str) -> None:
    env = {"PYTHONWARNDEFAULTENCODING": "1"}
    plain, _ = run(program, JITSERVER_CLIENT_CACHE="0", **env)
    assert [run(program, **env)[0], run(program, **env)[0]] == [plain, plain]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["log lines and events", "files that are opened", "a compiled object"])
def test_such_programs_find_compilations(run: Run, name: str) -> None:
    run(OBSERVED[name])
    found, _ = run(OBSERVED[name])[1]
    assert found > 0


PATCHED = """
    import contextlib, inspect, time
    from unittest import mock
    import jax.numpy as jnp
    x = jnp.exp(jnp.ones(7))
    compilation_cache._TRIMMING_KEYS = ""  # each `put` trims
    with contextlib.ExitStack() as patches:
        calls = {
            f"{module.__name__}.{name}": patches.enter_context(mock.patch.object(module, name, wraps=function))
            for module in (os, time)
            for name, function in inspect.getmembers(module, inspect.isbuiltin)
        }
        jnp.tanh(x)
        result = {name: function.call_count for name, function in calls.items()}
"""


@pytest.mark.slow
def test_functions_that_a_program_patches_are_called_by_jax_alone(run: Run) -> None:
    plain, _ = run(PATCHED, JITSERVER_CLIENT_CACHE="0")
    (made, [_, compiled]), (found, [times, _]) = run(PATCHED), run(PATCHED)
    assert plain["time.monotonic"] > 0
    assert compiled > 0
    assert times > 0
    assert made == plain
    # A found program takes fewer calls of the clock: JAX does not measure its compilation.
    assert all(found[name] <= plain[name] for name in plain)


INTERRUPTED = """
    import signal
    import jax, jax.numpy as jnp
    kind = {"KeyboardInterrupt": KeyboardInterrupt, "TimeoutError": TimeoutError}[sys.argv[1]]
    def late(*_):
        raise kind("late")
    signal.signal(signal.SIGALRM, late)
    name = sys.argv[2]
    own = getattr(compilation_cache, name)
    def interrupted(*arguments):
        signal.raise_signal(signal.SIGALRM)
        return own(*arguments)
    x = jnp.float32(3.0)
    setattr(compilation_cache, name, interrupted)
    try:
        jax.jit(lambda x: jnp.tanh(x) * 3)(x)
        result = "swallowed"
    except kind as error:
        result = str(error)
    setattr(compilation_cache, name, own)
    assert float(jax.jit(lambda x: jnp.tanh(x) * 3)(x)) > 2
"""


@pytest.mark.parametrize("kind", ["KeyboardInterrupt", "TimeoutError"])
@pytest.mark.parametrize("name", ["open_fd", "write_fd"])
def test_exceptions_of_signal_handlers_are_the_programs(run: Run, kind: str, name: str, short_path: Path) -> None:
    assert run(INTERRUPTED, kind, name)[0] == "late"
    assert not list((short_path / "cache").glob("*/compilations/*.*"))


def test_a_handler_may_compile_meanwhile(run: Run) -> None:
    program = INTERRUPTED.replace('raise kind("late")', "result.append(float(jnp.cos(x)))").replace(
        'result = "swallowed"', "pass"
    )
    result, (_, compiled) = run(program.replace("def late", "result = []\n    def late"), "TimeoutError", "write_fd")
    assert result
    assert compiled > 0


LOCATIONS = """
    import jax, jax.numpy as jnp
    @jax.jit
    def f(x):
        with jax.named_scope(sys.argv[1]):
            return jnp.tanh(x) @ x
    result = float(f(jnp.ones((4, 4)))[0, 0])
"""


def test_a_program_is_found_again_after_its_lines_and_scopes_changed(run: Run) -> None:
    _, (_, compiled) = run(LOCATIONS, "encoder")
    assert run(LOCATIONS, "encoder")[1] == [compiled, 0]
    assert run("\n\n" + LOCATIONS, "decoder")[1] == [compiled, 0]


PARTITIONS = """
    import jax, jax.numpy as jnp
    from jax.experimental.custom_partitioning import custom_partitioning
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    factor = float(sys.argv[1])
    scaled = custom_partitioning(lambda x: x)
    scaled.def_partition(
        infer_sharding_from_operands=lambda mesh, arguments, result: arguments[0].sharding,
        partition=lambda mesh, arguments, result: (
            mesh, lambda x: x * factor, arguments[0].sharding, (arguments[0].sharding,)
        ),
        sharding_rule="i -> i",
    )
    x = jax.device_put(jnp.ones(8), NamedSharding(Mesh(jax.devices(), ("d",)), PartitionSpec("d")))
    result = float(jax.jit(scaled)(x)[0])
"""


def test_functions_that_partition_programs_count(run: Run) -> None:
    # With the second, jax's key does not even have the function's id.
    env = {
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
        "JAX_REMOVE_CUSTOM_PARTITIONING_PTR_FROM_CACHE_KEY": "1",
    }
    assert run(PARTITIONS, "3", **env)[0] == 3
    assert run(PARTITIONS, "5", **env)[0] == 5


def test_a_program_that_replaces_the_compiler_keeps_to_itself(run: Run, short_path: Path) -> None:
    result, counts = run("""
    import jax.numpy as jnp
    from jax._src import compiler
    old, result = compiler.backend_compile_and_load, []
    def mine(*arguments):
        result.append(1)
        return old(*arguments)
    compiler.backend_compile_and_load = mine
    jnp.tanh(jnp.ones(7))
    """)
    assert len(result) > 0
    assert counts == [0, 0]
    assert not list((short_path / "cache").glob("*/compilations/*"))


CONFIGURED = """
    import jax, jax.numpy as jnp
    jnp.ones(3) + 1
    jax.config.update("jax_compilation_cache_dir", sys.argv[1])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jnp.sin(jnp.ones(5))
    result = jax.config.jax_compilation_cache_dir
"""


def test_a_cache_that_the_user_configures_takes_precedence(run: Run, short_path: Path) -> None:
    theirs = short_path / "theirs"
    env = {"JAX_COMPILATION_CACHE_DIR": str(theirs), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    before, after = run(CONFIGURED, str(theirs), **env), len(list(theirs.iterdir()))
    assert before == [str(theirs), [0, 0]]
    assert after > 0
    later = run(CONFIGURED, str(short_path / "later"))
    ours = len(list((short_path / "cache").glob("*/compilations/*")))
    assert later == [str(short_path / "later"), [0, ours]]
    assert ours > 0
    assert any((short_path / "later").iterdir())


def test_programs_with_large_constants_are_left_out(run: Run) -> None:
    program = """
    import jax, jax.numpy as jnp, numpy as np
    from jitclient.jaxside import compiler
    compiler._MAX_TEXT_BYTES = 1 << 16
    large = jnp.asarray(np.arange(1 << 15, dtype="float32"))
    before = compilation_cache.own().compiled
    jax.jit(lambda x: large + x)(large)
    result = compilation_cache.own().compiled - before
    """
    assert run(program)[0] == 0


COUNTED = """
    import jax, jax.numpy as jnp
    x = jnp.ones(3)
    cache = compilation_cache.own()
    jax.jit(lambda x: jnp.linalg.inv(jnp.outer(x, x) + jnp.eye(3)))(x)
    jax.jit(lambda x: jax.pure_callback(lambda y: y, x, x))(x)
    jax.jit(lambda x: x * 2).lower(x).compile()
    result = [
        {reason: times for reason, (times, _) in cache.excluded.items()},
        cache.compiled_seconds > 0,
        cache.saved_seconds > 0,
        [[each.function, each.where] for each, *_ in compilation_cache.made_in_each_run()],
    ]
"""


def test_compilations_are_counted_with_the_reason_why_none_is_kept(run: Run) -> None:
    excluded = {
        "the program calls back into Python": 1,
        "the program compiles it itself, with lower and compile": 1,
    }
    for made, found in ((True, False), (False, True)):
        *counted, remade = run(COUNTED)[0]
        assert counted == [excluded, made, found]
        assert sorted(name for name, _ in remade) == ["jit(<lambda>)", "jit(<lambda>)"]
        assert all(re.fullmatch(r"[^/]+:\d+", where) for _, where in remade)


TUNED = """
    import jax, numpy as np
    from jax._src import compiler
    from jitclient.jaxside import compiler as hook
    if sys.argv[1:]:
        hook._TUNED = frozenset({"cpu"})
    told, own = [], compiler.backend_compile_and_load
    def compile_and_load(backend, module, devices, options, callbacks):
        found = options.executable_build_options.debug_options
        told.append([found.xla_gpu_per_fusion_autotune_cache_dir, str(found.xla_gpu_experimental_autotune_cache_mode)])
        return own(backend, module, devices, options, callbacks)
    if sys.argv[1:] == ["observed"]:
        compiler.backend_compile_and_load = compile_and_load
    if sys.argv[1:] == ["tuned"]:
        keep = hook._Hook._keep_tuning
        hook._Hook._keep_tuning = lambda *given: told.append(keep(*given)) or told[-1]
    if sys.argv[1:] == ["unwritable"]:
        def compile_without(*given):
            if given[3].executable_build_options.debug_options.xla_gpu_per_fusion_autotune_cache_dir:
                raise jax.errors.JaxRuntimeError("the disk is full")
            return own(*given)
        compiler.backend_compile_and_load = compile_without
    jax.jit(lambda x: x * 2)(np.ones(3, np.float32))
    result = told
"""


def test_what_xla_measures_on_a_gpu_is_kept_in_the_cache(run: Run, short_path: Path) -> None:
    """With XLA's options as they arrive at the CPU, which measures nothing."""
    [[folder, mode]], _ = run(TUNED, "observed")
    assert Path(folder).is_dir()
    assert Path(folder).relative_to(short_path / "cache").name == "tuning"
    assert mode.endswith("UPDATE")
    assert run(TUNED, "observed", JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES="none")[0][0][0] == ""
    own = {"JAX_COMPILATION_CACHE_DIR": str(short_path / "jax"), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    assert run(TUNED, "observed", **own)[0][0][0].startswith(str(short_path / "jax"))


def test_a_folder_that_xla_cannot_write_fails_no_compilation(run: Run) -> None:
    assert run(TUNED, "unwritable")[0] == []


def test_it_is_not_in_the_key(run: Run) -> None:
    assert run(TUNED, "tuned") == [[True], [0, 1]]
    assert run(TUNED)[1] == [1, 0]


@pytest.mark.parametrize(
    "name", ["_compile_and_write_cache", "_cache_read", "_cache_write", "_get_cache", "put_executable_and_time"]
)
def test_a_jax_with_other_internals_keeps_its_own(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from jax._src import compilation_cache as caches
    from jax._src import compiler
    from jax._src.interpreters import pxla

    monkeypatch.setattr(compiler if hasattr(compiler, name) else caches, name, lambda other: other)
    before = [compiler._compile_and_write_cache, inspect.getattr_static(pxla.MeshComputation, "compile")]
    cache: Any = SimpleNamespace()
    assert not hook.use(cache)
    assert [compiler._compile_and_write_cache, inspect.getattr_static(pxla.MeshComputation, "compile")] == before


@pytest.mark.parametrize(
    "name", ["pxla._cached_compilation", "pxla.MeshComputation", "pjit._pjit_call_impl_python", "compiler._cache_write"]
)
def test_so_it_does_if_they_are_missing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from jax._src import compiler, pjit
    from jax._src.interpreters import pxla

    module, attribute = name.split(".")
    monkeypatch.delattr({"pxla": pxla, "pjit": pjit, "compiler": compiler}[module], attribute)
    assert not hook.use(SimpleNamespace())  # type: ignore[arg-type]


THREADS = """
    import threading, time
    import jax, numpy as np
    from jax.experimental import serialize_executable

    x = np.ones((8, 8), np.float32)
    result = []
    for number in range(16):
        f = jax.jit(lambda x: jax.numpy.sin(x @ x + number).sum())
        ready, compiled = threading.Barrier(2), []

        def call():
            ready.wait()
            f(x).block_until_ready()

        def compile_ahead():
            ready.wait()
            time.sleep(number * 2e-4)
            compiled.append(f.lower(x).compile())

        threads = [threading.Thread(target=target) for target in (call, compile_ahead)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        again = serialize_executable.deserialize_and_load(*serialize_executable.serialize(compiled[0]))
        result.append(again(x).item() == f(x).item())
"""


def test_a_compiled_object_is_xlas_while_another_thread_calls_the_function(run: Run) -> None:
    for _ in range(2):  # the calls of the second process find their executables
        same, (found, _) = run(THREADS)
        assert same == [True] * 16
    assert found


def test_exceptions_that_other_threads_raise_here_are_not_errors_of_the_cache() -> None:
    set_error = ctypes.pythonapi.PyErr_SetNone  # leaves no frame, as PyThreadState_SetAsyncExc does
    set_error.argtypes, set_error.restype = [ctypes.py_object], None
    for kind in (TimeoutError, RuntimeError, ValueError, KeyboardInterrupt):
        with pytest.raises(kind):
            hook._attempt(set_error, kind)
    assert hook._attempt(os.stat, "/nowhere") is None


REFUSES = """
    import types
    import jax, jax.numpy as jnp
    from jitclient.jaxside import cpu_executables

    # In a module of ours, because an error from elsewhere is the program's.
    fake = types.ModuleType("jitclient.fake")
    fake.attempts, fake.loading, fake.jax = [], cpu_executables.loading, jax
    exec('''class Loading:
        def __enter__(self):
            with loading():
                attempts.append(1)
                raise jax.errors.JaxRuntimeError("Target machine feature +avx512f is missing")

        def __exit__(self, *error):
            pass
    ''', vars(fake))
    cpu_executables.loading = fake.Loading
    values = [float(f(2.0)) for f in (jnp.sqrt, jnp.exp2, jnp.log2)]
    result = [values, len(fake.attempts), compilation_cache.own().excluded]
"""


def test_a_processor_whose_executables_xla_refuses_asks_it_once(run: Run) -> None:
    (values, attempts, excluded), (found, made) = run(REFUSES)
    assert (attempts, excluded, found) == (0, {}, 0)
    (again, attempts, excluded), (found, compiled) = run(REFUSES)
    assert (again, attempts, found) == (values, 1, 0)
    [(why, (times, _))] = excluded.items()
    assert why == "XLA refuses stored executables on this processor: Target machine feature +avx512f is missing"
    assert (times, compiled) == (made - 1, 1)
