"""Programs move in: after some calls, the process runs them itself, as `jax.jit` would, and without the daemon."""

import math
import os
import signal
import threading
import time
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import pytest

import jitclient
from jitclient import Array
from jitclient.calls import MISS, moved_in
from jitclient.calls.arguments import spec_of
from jitclient.calls.program import Program
from jitclient.errors import DaemonSilent
from jitclient.jaxside import cpu_executables, internals
from jitclient.session import process
from jitclient.session.session import Session
from jitclient.wire.introspection import Snapshot
from jitclient.wire.messages import ForeignFunction, Verb
from jitclient.wire.shardings import Sharding

pytestmark = [pytest.mark.usefixtures("daemon"), pytest.mark.cpu(reason="programs stay where the accelerator is")]

FACTOR = 2.0


class Pair(NamedTuple):
    first: Any
    second: Any


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs move in after their first call, which waits for it."""
    monkeypatch.setattr(moved_in, "_FIRST_CALLS", 1)
    monkeypatch.setattr(moved_in, "_BYTES_PER_CALL", 1 << 30)
    monkeypatch.setattr(moved_in.Moving, "go_on", _go_on)


_begin = moved_in.Moving.go_on


def _go_on(moving: Any) -> None:
    _begin(moving)
    moved_in._wait()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Grows with each exchange with the daemon."""
    made: list[str] = []
    run, ask = Session.run, Session.ask_once
    monkeypatch.setattr(Session, "run", lambda *a, **k: made.append("run") or run(*a, **k))
    monkeypatch.setattr(Session, "ask_once", lambda s, verb, *a, **k: made.append(verb) or ask(s, verb, *a, **k))
    return made


def program_of(fn: Any) -> Program:
    (program,) = fn.general_path().programs.values()
    return program  # type: ignore[no-any-return]


def has_moved_in(fn: Any) -> bool:
    return program_of(fn).moving.done is not None


def there(value: float = 1.0, shape: tuple[int, ...] = (3,)) -> Any:
    return jitclient.device_put(np.full(shape, value, "float32"))


def described(leaf: Any) -> Any:
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return str(leaf.dtype), jax.random.key_data(leaf).tolist()
    return str(leaf.dtype), leaf.shape, bool(leaf.weak_type), leaf.committed, np.asarray(leaf).tolist()


def everything(*args: Any, n: int = 1, **kwargs: Any) -> Any:
    total = sum(jnp.sum(_numbers(leaf)) for leaf in jax.tree.leaves((args, kwargs))) * n
    return {"total": total, "none": None, "pair": Pair(total * 2, [jnp.float32(n)]), "weak": jnp.asarray(1.0) * n}


def _numbers(leaf: Any) -> Any:
    is_key = jnp.issubdtype(jnp.result_type(leaf), jax.dtypes.prng_key)
    return jax.random.uniform(leaf.ravel()[0]) if is_key else leaf


CALLS: dict[str, Callable[[], tuple[tuple[Any, ...], dict[str, Any]]]] = {
    "arrays of jax": lambda: ((jnp.arange(3.0), jnp.ones((2, 2), jnp.bfloat16)), {}),
    "a committed array": lambda: ((jax.device_put(jnp.ones(3), jax.devices()[0]),), {}),
    "arrays of numpy": lambda: ((np.arange(3), np.float64(2), np.ones((4, 6))[::2, 1::2]), {}),
    "numbers": lambda: ((1, 2.5, True, 1 + 2j), {}),
    "a weak array": lambda: ((jnp.asarray(1.5) * 1,), {}),
    "keys": lambda: ((jax.random.key(3), jax.random.PRNGKey(1), jax.random.split(jax.random.key(1), 2)), {}),
    "trees": lambda: (({"a": jnp.ones(2), "b": [np.ones(1), None, (3,)]}, Pair(jnp.ones(1), 2.0)), {}),
    "keywords": lambda: ((np.ones(2),), {"b": jnp.ones(1), "a": {"c": 2.0}}),
    "static": lambda: ((jnp.ones(2),), {"n": 3}),
    "nothing": lambda: ((), {}),
}


@pytest.mark.parametrize("case", CALLS)
def test_results_are_those_of_jit_and_no_call_asks_the_daemon(case: str, asked: list[str]) -> None:
    fn, plain = (jit(everything, static_argnames="n") for jit in (jitclient.jit, jax.jit))
    args, kwargs = CALLS[case]()
    wanted = [plain(*args, **kwargs) for _ in range(3)][-1]
    fn(*args, **kwargs)
    assert has_moved_in(fn)
    del asked[:]
    for _ in range(3):
        found = fn(*args, **kwargs)
        assert jax.tree.structure(found) == jax.tree.structure(wanted)
        assert Array not in map(type, jax.tree.leaves(found))
        assert list(map(described, jax.tree.leaves(found))) == list(map(described, jax.tree.leaves(wanted)))
    assert asked == []


@pytest.mark.parametrize("is_committed", [False, True])
def test_results_of_an_exported_program_are_those_of_jit(is_committed: bool) -> None:
    # Results of what a program's own trace exported have no weak types, and are committed.
    args = (1.0, jnp.ones(2), jax.random.key(1))
    if is_committed:
        args = jax.device_put(args, jax.devices()[0])
    plain = jax.jit(lambda x, y, key: (2.5, x * y, jax.random.split(key)))
    wanted, exported = plain(*args), jax.export.export(plain)(*args)
    compiled = jax.jit(jax.export.deserialize(exported.serialize()).call).lower(*args).compile()
    specs = [[spec_of(leaf, False) for leaf in leaves] for leaves in (args, wanted)]
    found = moved_in.MovedIn(compiled, *specs).call(args)
    assert list(map(described, found)) == list(map(described, wanted))


def test_keys_are_made() -> None:
    fn, plain = jitclient.jit(jax.random.split), jax.jit(jax.random.split)
    for seed in range(4):
        found, wanted = fn(jax.random.key(seed)), plain(jax.random.key(seed))
        if seed:
            assert described(found) == described(wanted)
    assert has_moved_in(fn)


def test_an_array_of_the_daemon_comes_over_once(asked: list[str]) -> None:
    fn, x = jitclient.jit(lambda x: x * FACTOR), there()
    del asked[:]
    assert [fn(x).tolist() for _ in range(5)] == [[2.0] * 3] * 5
    assert asked.count("run") <= 3  # the first call, and the fetches of its result and its argument
    assert has_moved_in(fn)


def test_a_session_counts_what_has_moved_in() -> None:
    def moved() -> int:
        sessions = process.session().ask(Verb.SNAPSHOT, None, Snapshot).sessions
        return sum(session.moved_in for session in sessions if session.pid == os.getpid())

    fn, before = jitclient.jit(lambda x: x * FACTOR - 0.5), moved()
    fn.lower(jnp.ones(3)).compile()
    assert moved() == before
    for size in (3, 3, 4):
        fn(jnp.ones(size))
    assert moved() == before + 2


def test_a_function_has_several_programs(asked: list[str]) -> None:
    fn = jitclient.jit(lambda x: x.sum())
    for _ in range(2):
        for size in (1, 2, 3, 4, 5, 6):
            assert float(fn(jnp.ones(size))) == size
    del asked[:]
    assert [float(fn(jnp.ones(size))) for size in (6, 1, 4, 2)] == [6, 1, 4, 2]
    assert asked == []


def test_donated_arrays_are_gone() -> None:
    step, x = jitclient.jit(lambda x, y: x + y, donate_argnums=0), jnp.ones(3)
    for n in range(4):
        before, x = x, step(x if n % 2 else there(float(n + 1)), np.float32(1))
        if n % 2:
            assert before.is_deleted()
        assert x.tolist() == [n + 2.0] * 3
    assert has_moved_in(step)
    given = there()
    step(given, np.float32(1))
    assert given.is_deleted()
    for use in (np.asarray, lambda y: y + 1, lambda y: step(y, np.float32(1)), lambda y: jax.jit(jnp.sum)(y)):
        with pytest.raises((RuntimeError, ValueError), match="deleted"):
            use(given)


def test_what_is_rebound_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    fn = jitclient.jit(lambda x: x * FACTOR)
    assert [fn(jnp.ones(1)).tolist() for _ in range(3)] == [[2.0]] * 3
    monkeypatch.setitem(globals(), "FACTOR", 3.0)
    assert [fn(jnp.ones(1)).tolist() for _ in range(3)] == [[3.0]] * 3
    monkeypatch.undo()


def test_after_a_rebinding_to_an_equal_value_it_is_called_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    fn = jitclient.jit(lambda x: x * FACTOR)
    for _ in range(3):
        fn(jnp.ones(1))
    monkeypatch.setitem(globals(), "FACTOR", float("2.0"))
    for _ in range(3):
        fn(jnp.ones(1))
    monkeypatch.setattr(type(fn.general_path()), "call", lambda *_: pytest.fail("a plan makes this call"))
    assert fn(jnp.ones(1)).tolist() == [2.0]


def test_the_content_of_a_cell_is_noticed() -> None:
    factor = 2.0

    def fn(x: Any) -> Any:
        return x * factor

    jitted = jitclient.jit(fn)
    assert [jitted(jnp.ones(1)).tolist() for _ in range(3)] == [[2.0]] * 3
    factor = 5.0
    assert [jitted(jnp.ones(1)).tolist() for _ in range(3)] == [[5.0]] * 3


def helper(x: Any, by: float = 2.0) -> Any:
    return x * by


def test_replaced_code_and_defaults_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    fn = jitclient.jit(lambda x: helper(x))
    assert [fn(jnp.ones(1)).tolist() for _ in range(3)] == [[2.0]] * 3
    monkeypatch.setattr(helper, "__defaults__", (4.0,))
    assert [fn(jnp.ones(1)).tolist() for _ in range(3)] == [[4.0]] * 3
    monkeypatch.setattr(helper, "__code__", (lambda x, by: x + by).__code__)
    assert [fn(jnp.ones(1)).tolist() for _ in range(3)] == [[5.0]] * 3


def test_settings_are_noticed() -> None:
    fn, wide = jitclient.jit(lambda x: x * FACTOR), np.ones(2, "float64")
    for _ in range(3):
        assert fn(wide).dtype == "float32"
    with jax.enable_x64(True):
        assert [fn(wide).dtype for _ in range(3)] == ["float64"] * 3
    with jax.disable_jit():
        assert type(fn(FACTOR)) is float
    assert fn(wide).dtype == "float32"


@pytest.mark.parametrize("setting", ["debug_nans", "debug_infs"])
def test_checks_of_values_are_made(setting: str) -> None:
    fn = jitclient.jit(lambda x: jnp.log(x) / x)
    for _ in range(3):
        fn(jnp.ones(2))
    with getattr(jax, setting)(True), pytest.raises(FloatingPointError, match=r"log|div"):
        fn(jnp.zeros(2) if setting == "debug_infs" else -jnp.ones(2))
    assert fn(jnp.ones(2)).tolist() == [0.0, 0.0]


def test_the_guard_of_transfers_is_heeded() -> None:
    there_already, value = there(), np.ones(3, "float32")
    fn = jitclient.jit(lambda x: x * FACTOR)
    for x in (there_already, value) * 3:
        fn(x)
    assert has_moved_in(fn)
    for level in ("disallow", "disallow_explicit"):
        with jax.transfer_guard_host_to_device(level):
            assert fn(there_already).tolist() == [2.0] * 3
            with pytest.raises(jax.errors.JaxRuntimeError, match="Disallowed host-to-device transfer"):
                fn(value)
    assert fn(value).tolist() == [2.0] * 3


def test_another_mesh_of_devices_is_noticed() -> None:
    """Of a mesh, JAX's trace context has the axes, and its C++ code compares the devices, too."""
    x, missed = jnp.ones(1), list[Any]()
    made = jax.jit(jnp.sin).lower(x).compile()
    value = made(x)

    def miss(x: Any) -> Any:
        missed.append(x)
        return value, internals.fast_program(made, 1, value), False

    fast, mesh = internals.fast_calls(jnp.sin, "sin", miss, (), ()), internals.mesh_of_devices()
    before = mesh.value
    try:
        for devices in (before, ("devices", 2), ("devices", 3)):
            mesh.set_local(devices)
            for _ in range(3):
                fast(x)
    finally:
        mesh.set_local(before)
    assert len(missed) == 3


def test_static_arguments_of_other_types_are_others() -> None:
    fn, plain = (jit(lambda x, n: x * n, static_argnums=1) for jit in (jitclient.jit, jax.jit))
    x = jnp.arange(2)
    for _ in range(3):
        for n in (1, True, 1.0, np.float32(1)):
            assert fn(x, n).dtype == plain(x, n).dtype


def test_after_a_clear_of_caches_it_is_called_as_before(asked: list[str]) -> None:
    fn = jitclient.jit(lambda x: x * FACTOR)
    for clear in (jax.clear_caches, fn.clear_cache, lambda: None):
        assert [fn(jnp.ones(1)).tolist() for _ in range(3)] == [[2.0]] * 3
        clear()
    del asked[:]
    assert fn(jnp.ones(1)).tolist() == [2.0]
    assert asked == []


def test_an_interrupt_of_the_first_call_here_is_one_of_that_call(
    monkeypatch: pytest.MonkeyPatch, asked: list[str]
) -> None:
    fn = jitclient.jit(lambda x: x * FACTOR)
    fn(jnp.ones(1))
    with monkeypatch.context() as patched:
        patched.setattr(moved_in.MovedIn, "call", lambda *_: signal.raise_signal(signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            fn(jnp.ones(1))
    fn(jnp.ones(1))
    del asked[:]
    general = fn.general_path()
    monkeypatch.setattr(type(general), "call", lambda *_: pytest.fail("a plan makes this call"))
    assert fn(jnp.ones(1)).tolist() == [2.0]
    assert asked == []


def test_a_program_of_large_arrays_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moved_in, "_MAX_ARRAY_BYTES", 1000)
    fn = jitclient.jit(lambda x: x * FACTOR)
    for size, moves_in in ((125, True), (126, False)):
        fn.clear_cache()
        for _ in range(3):
            fn(jnp.ones(size))
        assert has_moved_in(fn) == moves_in


def test_only_programs_that_call_lapack_import_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    names = cpu_executables.names_native_functions
    monkeypatch.setattr(cpu_executables, "names_native_functions", lambda data: asked.append(names(data)) or asked[-1])
    for function in (jnp.linalg.cholesky, jnp.linalg.svd, lambda x: jnp.sin(x) @ x):
        fn = jitclient.jit(function)
        for _ in range(3):
            found = fn(jnp.eye(3))
        assert np.isfinite(np.asarray(jax.tree.leaves(found)[0])).all()
        assert has_moved_in(fn)
    assert asked == [True, True, False]


def test_a_very_large_program_stays(monkeypatch: pytest.MonkeyPatch, asked: list[str]) -> None:
    monkeypatch.setattr(moved_in, "_MAX_BYTES", 100)
    fn = jitclient.jit(lambda x: jnp.cos(x) @ x)
    for _ in range(4):
        fn(jnp.ones(3))
    assert not has_moved_in(fn)
    assert asked.count(Verb.LOAD) == 1


def test_settings_that_jax_does_not_compare_are_noticed() -> None:
    fn = jitclient.jit(lambda seed: jax.random.key_data(jax.random.key(seed)))
    for impl, size in (("threefry2x32", 2), ("rbg", 4), ("threefry2x32", 2), ("rbg", 4)):
        with jax.default_prng_impl(impl):
            assert [fn(1).shape for _ in range(3)] == [(size,)] * 3


class Calling:
    """A tree that calls a function while it is flattened."""

    def __init__(self, x: Any, call: Callable[[], Any]) -> None:
        self.x, self.call = x, call


jax.tree_util.register_pytree_node(
    Calling, lambda tree: (tree.call(), ((tree.x,), None))[1], lambda _, children: Calling(*children, lambda: None)
)


def test_a_call_within_the_flattening_of_another_has_its_own_value() -> None:
    fn, sizes, inner = jitclient.jit(lambda tree: jax.tree.leaves(tree)[0] * FACTOR), iter(range(3, 20)), {}

    def call() -> None:
        size = next(sizes)
        inner[size] = fn(np.ones(size, "float32"))

    for _ in range(3):
        fn(np.ones(1, "float32"))
    for shape in ((1, 2), (2, 2)):
        # The second one has moved in, and is the first that JAX's own code makes.
        for each in (lambda: None, call):
            assert fn(Calling(np.ones(shape, "float32"), each)).tolist() == np.full(shape, 2.0).tolist()
    assert inner
    for size, value in inner.items():
        for found in (value, *[fn(np.ones(size, "float32")) for _ in range(3)]):
            assert found.tolist() == [2.0] * size


def test_an_array_that_the_daemon_has_taken_is_gone_here_too() -> None:
    fn, x = jitclient.jit(lambda x: x * FACTOR), there()
    take = jitclient.jit(lambda x: (x + 1, jax.pure_callback(lambda v: v, x, x)), donate_argnums=0)
    for _ in range(3):
        fn(x)
    for given in (x, there()):
        fn(given)
        take(given)
        assert given.is_deleted()
        uses: tuple[Callable[[Any], Any], ...] = (fn, np.asarray, jnp.sum, lambda y: y + 1, lambda y: y[0], list)
        for use in uses:
            with pytest.raises((RuntimeError, ValueError), match="deleted"):
                use(given)


def test_arrays_of_a_program_that_stays_are_not_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moved_in, "_MAX_ARRAY_BYTES", 1000)
    fn = jitclient.jit(lambda tree: {"x": tree["x"] * FACTOR})
    for _ in range(3):
        fn({"x": there(shape=(1000,))})
    for _ in range(3):
        fn({"x": jnp.ones(3)})
    for _ in range(3):
        given = there(shape=(1000,))
        assert type(fn({"x": given})["x"]) is Array
        assert given._local is None
    assert fn({"x": jnp.ones(3)})["x"].tolist() == [2.0] * 3


def test_a_call_that_fails_here_is_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    # The call may have taken the memory of its arguments.
    def fails(*_: Any) -> Any:
        raise RuntimeError("RESOURCE_EXHAUSTED")

    monkeypatch.setattr(moved_in.internals, "fast_calls", lambda *_: fails)  # type: ignore[attr-defined]
    fn = jitclient.jit(lambda x: x * FACTOR)
    process.session()
    path = fn.general_path()
    path.plans = (moved_in.LocalCalls(fn.__wrapped__, "fn", path._options, None).plan,)
    monkeypatch.setattr(type(path), "call", lambda *_: pytest.fail("the call is made again"))
    with pytest.raises(RuntimeError, match="RESOURCE_EXHAUSTED"):
        fn(jnp.ones(1))


def test_it_is_part_of_traces() -> None:
    fn, x = jitclient.jit(lambda x, y: (x * y).sum()), jnp.arange(3.0)
    for _ in range(3):
        fn(x, x)
    assert jax.grad(fn)(x, x).tolist() == x.tolist()
    assert jax.vmap(fn)(jnp.ones((2, 3)), jnp.ones((2, 3))).tolist() == [3.0, 3.0]
    # Its arguments are no tracers, but the call is part of the trace.
    assert "name=<lambda>" in str(jax.make_jaxpr(lambda y: fn(x, x) + y)(1.0))


def test_a_wrong_argument_raises_the_error_of_jit() -> None:
    fn, plain = (jit(lambda x, n: x * n, static_argnums=1) for jit in (jitclient.jit, jax.jit))
    for _ in range(3):
        fn(jnp.ones(2), 2)
    for args in ((jnp.ones(2), [2]), ("text", 2), (jnp.ones(2),)):
        raised = []
        for each in (fn, plain):
            with pytest.raises((TypeError, ValueError)) as error:
                each(*args)
            raised.append(error.type)
        assert raised[0] == raised[1]


def test_a_daemon_that_stops_does_not_matter(own: Any) -> None:
    program = """
        import json, os, signal, sys
        import jax.numpy as jnp
        import jitclient
        from jitclient.calls import moved_in

        fn = jitclient.jit(lambda x: x * 2)
        while not moved_in._here:
            fn(jnp.ones(2))
            moved_in._wait()
        x = fn(jnp.ones(2))
        os.kill(int(sys.argv[1]), signal.SIGKILL)
        print(json.dumps([fn(fn(x)).tolist(), fn(2.0 * x).tolist()]))
    """
    with own.serving() as daemon:
        assert own.run(program, str(daemon.pid), JITSERVER_FALLBACK="error") == [[8.0, 8.0], [8.0, 8.0]]


def test_a_thread_that_never_ends_does_not_keep_the_program(own: Any) -> None:
    program = """
        import json, threading
        import jax.numpy as jnp
        import jitclient
        from jitclient.calls import moved_in

        moved_in._FIRST_CALLS, moved_in._WAIT_SECONDS = 1, 0.1
        begun = threading.Event()
        moved_in.cpu_executables.load = lambda data: begun.set() or threading.Event().wait()
        fn = jitclient.jit(lambda x: x * 2)
        found = [fn(jnp.ones(1)).tolist() for _ in range(3)]
        print(json.dumps([found, begun.wait(60)]))
    """
    with own.serving():
        assert own.run(program) == [[[2.0]] * 3, True]


def test_nothing_moves_in_until_the_program_imports_jax(own: Any) -> None:
    program = """
        import json, sys
        import numpy as np
        import jitclient
        from jitclient.calls import moved_in

        moved_in._FIRST_CALLS = 1
        fn = jitclient.jit(lambda x: x * 2)
        found = [np.asarray(fn(np.ones(1, "float32"))).tolist() for _ in range(3)]
        had_jax = "jax" in sys.modules
        import jax
        for _ in range(2):
            found.append(fn(np.ones(1, "float32")).tolist())
            moved_in._wait()
        print(json.dumps([found, had_jax, isinstance(fn(np.ones(1, "float32")), jitclient.Array)]))
    """
    with own.serving():
        made, again = (own.run(program, JITSERVER_FALLBACK="error") for _ in range(2))
    assert made == [[[2.0]] * 5, True, False]
    assert again == [[[2.0]] * 5, False, False]


STAY: dict[str, Callable[[], Any]] = {
    "callbacks": lambda: (lambda x: jax.pure_callback(lambda v: v, x, x), {}),
    "effects": lambda: (lambda x: jax.debug.print("{}", x) or x, {}),
}


@pytest.mark.callbacks
@pytest.mark.parametrize("case", STAY)
def test_what_needs_the_daemon_stays_there(case: str) -> None:
    function, options = STAY[case]()
    fn = jitclient.jit(function, **options)
    assert [fn(jnp.ones(2)).tolist() for _ in range(4)] == [[1.0, 1.0]] * 4
    assert not has_moved_in(fn)


@pytest.mark.parametrize("special", ["may_raise", "has_effects", "foreign", "placed", "sharding"])
def test_special_programs_stay(special: str) -> None:
    fn = jitclient.jit(lambda x: x * FACTOR)
    fn(jnp.ones(1))
    program = program_of(fn)

    def calls_left(named: str) -> float:
        value = {"foreign": (ForeignFunction("there"),)}.get(named, True)
        changed = {} if named in ("", "placed", "sharding") else {named: value}
        place = Sharding(None, ("x",)) if named == "sharding" else None
        specs = [msgspec.structs.replace(spec, sharding=place) for spec in program.specs]
        prepared = msgspec.structs.replace(program.prepared, **changed)
        return moved_in.Moving(program.session, 1, prepared, specs, "", named == "placed").calls_left

    assert (calls_left(""), calls_left(special)) == (1, math.inf)


def test_the_calls_of_another_session_are_not_made_here(monkeypatch: pytest.MonkeyPatch) -> None:
    fn = jitclient.jit(lambda x: x * FACTOR)
    for _ in range(3):
        fn(jnp.ones(1))
    general = fn.general_path()
    (plan,), local = general.plans, general._local
    assert plan((jnp.ones(1),), {}).tolist() == [2.0]
    assert local.is_current()
    monkeypatch.setattr(process, "current", None)
    assert plan((jnp.ones(1),), {}) is MISS
    assert not local.is_current()


def test_on_other_devices_nothing_moves_in(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("platform", "cuda"), ("devices", 99)):
        session = process.session()
        session.connect()
        with monkeypatch.context() as patched:
            patched.setattr(session, name, value)
            fn = jitclient.jit(lambda x: x * FACTOR)
            assert [fn(jnp.ones(1)).tolist() for _ in range(3)] == [[2.0]] * 3
            assert not has_moved_in(fn)


def test_over_ssh_nothing_moves_in() -> None:
    def is_on_same_cpu(address: str) -> bool:
        session: Any = types.SimpleNamespace(
            platform="cpu", devices=len(jax.devices()), settings=types.SimpleNamespace(address=address)
        )
        return moved_in.is_on_same_cpu(session)

    assert is_on_same_cpu("unix:/run/one.sock")
    assert not is_on_same_cpu("ssh://there")


def test_a_large_program_needs_many_calls(monkeypatch: pytest.MonkeyPatch, asked: list[str]) -> None:
    monkeypatch.setattr(moved_in, "_BYTES_PER_CALL", 300)
    fn = jitclient.jit(lambda x: jnp.sin(x) @ x)
    fn(jnp.ones(3))
    left = program_of(fn).moving.calls_left
    assert 3 < left < 1000
    for _ in range(int(left)):
        assert not has_moved_in(fn)
        fn(jnp.ones(3))
    assert has_moved_in(fn)
    assert asked.count(Verb.LOAD) == 2


def test_the_number_of_another_daemon_is_not_asked_for(asked: list[str]) -> None:
    session, fn = process.session(), jitclient.jit(lambda x: x * FACTOR)
    moving = moved_in.Moving.go_on
    fn.lower(jnp.ones(2)).compile()
    program = fn.lower(jnp.ones(2)).compile()._program
    session.program_generation += 1
    del asked[:]
    moving(program.moving)
    moved_in._wait()
    assert program.moving.done is None
    assert Verb.LOAD not in asked


def test_a_daemon_that_hangs_holds_up_no_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[dict[str, Any]] = []
    ask = Session.ask_once

    def ask_once(session: Session, verb: Verb, *rest: Any, **named: Any) -> Any:
        if verb is not Verb.LOAD:
            return ask(session, verb, *rest, **named)
        given.append(named)
        raise DaemonSilent("it hangs")

    monkeypatch.setattr(Session, "ask_once", ask_once)
    fn = jitclient.jit(lambda x: x * FACTOR)
    assert [fn(jnp.ones(1)).tolist() for _ in range(3)] == [[2.0]] * 3
    assert given == [{"timeout": moved_in._ASK_SECONDS}] * 3  # asked again after as many calls, and not for long
    assert not has_moved_in(fn)


def test_an_executable_that_does_not_load_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(data: bytes) -> Any:
        raise RuntimeError("cannot be loaded")

    monkeypatch.setattr(cpu_executables, "load", load)
    fn = jitclient.jit(lambda x: x * FACTOR)
    assert [fn(jnp.ones(1)).tolist() for _ in range(4)] == [[2.0]] * 4
    assert not has_moved_in(fn)


@pytest.mark.filterwarnings("ignore:.*fork:RuntimeWarning")
def test_a_forked_child_asks_the_daemon() -> None:
    fn, x = jitclient.jit(lambda x: x @ x), np.ones((300, 300), "float32")
    for _ in range(3):
        fn(x)
    assert has_moved_in(fn)
    child = os.fork()
    if child == 0:
        is_right = float(np.asarray(fn(x)).sum()) == 300.0**3 and type(fn(x)) is Array
        os._exit(0 if is_right else 1)
    signal.alarm(60)  # ends this test, with its message, if the child hangs
    try:
        assert os.waitpid(child, 0)[1] == 0
    finally:
        signal.alarm(0)


@pytest.mark.filterwarnings("ignore:.*fork:RuntimeWarning")
def test_a_fork_waits_for_a_program_that_is_being_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, loaded, load = threading.Event(), threading.Event(), cpu_executables.load

    def slow_load(data: bytes) -> Any:
        begun.set()
        time.sleep(0.2)
        loaded.set()
        return load(data)

    monkeypatch.setattr(cpu_executables, "load", slow_load)
    monkeypatch.setattr(moved_in.Moving, "go_on", _begin)
    fn = jitclient.jit(lambda x: x * FACTOR)
    fn(jnp.ones(1))
    assert begun.wait(60)
    child = os.fork()
    if child == 0:
        os._exit(0 if loaded.is_set() else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_version_of_jax_with_other_programs_gives_the_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moved_in.internals, "fast_program", lambda *_: [].missing)  # type: ignore[attr-defined]
    step, x = jitclient.jit(lambda x: x + 1, donate_argnums=0), jnp.zeros(2)
    for n in range(4):
        x = step(x)
        assert x.tolist() == [n + 1.0] * 2
    assert has_moved_in(step)


def test_without_the_fast_path_of_jax_the_values_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moved_in.internals, "fast_calls", lambda *_: None)  # type: ignore[attr-defined]
    fn = jitclient.jit(lambda x: {"y": x * FACTOR})
    assert [fn(jnp.ones(1))["y"].tolist() for _ in range(4)] == [[2.0]] * 4
    assert has_moved_in(fn)
