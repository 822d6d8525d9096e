"""Call plans: repeated calls take the fast path; changed calls fall back."""

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jitclient
from jitclient import Array
from jitclient.arrays.array import make_handles
from jitclient.calls import puts
from jitclient.calls.general_path import GeneralPath
from jitclient.calls.program import Program
from jitclient.errors import ArrayLost, DaemonSilent
from jitclient.jaxside import context, internals, unchanged
from jitclient.session import process
from jitclient.session.outbox import Drops
from jitclient.session.session import Session
from jitclient.wire.introspection import Status
from jitclient.wire.messages import Run, Verb

pytestmark = pytest.mark.usefixtures("daemon")

FACTOR = 2.0


class Pair(NamedTuple):
    first: Any
    second: Any


@pytest.fixture
def general(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one with each call that goes the general way."""
    made: list[int] = []
    call = GeneralPath.call
    monkeypatch.setattr(GeneralPath, "call", lambda *given: made.append(1) or call(*given))
    return made


def host(value: float = 1.0, shape: tuple[int, ...] = (3,), dtype: str = "float32") -> Any:
    return np.full(shape, value, dtype)


def there(value: float = 1.0, shape: tuple[int, ...] = (3,)) -> Any:
    return jitclient.device_put(host(value, shape))


def first(tree: Any) -> float:
    return float(np.asarray(jax.tree.leaves(tree)[0]).ravel()[0])


def add_all(*args: Any, n: int = 1, **kwargs: Any) -> Any:
    return sum(jnp.sum(_numbers(leaf)) for leaf in jax.tree.leaves((args, kwargs))) * n


def _numbers(leaf: Any) -> Any:
    is_key = jnp.issubdtype(jnp.result_type(leaf), jax.dtypes.prng_key)
    return jax.random.uniform(leaf.ravel()[0]) if is_key else leaf


COVERED: dict[str, Callable[[float], tuple[tuple[Any, ...], dict[str, Any]]]] = {
    "array of the daemon": lambda v: ((there(v),), {}),
    "array of numpy": lambda v: ((host(v),), {}),
    "narrowed": lambda v: ((host(v, dtype="float64"),), {}),
    "not contiguous": lambda v: ((host(v, (4, 6))[::2, 1::2],), {}),
    "bfloat16": lambda v: ((host(v).astype(jnp.bfloat16),), {}),
    "array of jax": lambda v: ((jnp.full(3, v),), {}),
    "arrays of jax, mixed": lambda v: ((there(v), jnp.full((2, 3), v, jnp.bfloat16), jnp.asarray(v)), {}),
    "legacy key": lambda v: ((jax.random.PRNGKey(int(v)),), {}),
    "typed key": lambda v: ((jax.random.key(int(v)), there(v)), {}),
    "typed keys by value": lambda v: ((jax.random.split(jax.random.key(int(v)), 3),), {}),
    "scalar of numpy": lambda v: ((np.float32(v),), {}),
    "float": lambda v: ((v,), {}),
    "int and bool": lambda v: ((int(v), v > 1), {}),
    "complex": lambda v: ((complex(v, v),), {}),
    "mixed": lambda v: ((there(v), host(v), v), {}),
    "tree": lambda v: (({"a": there(v), "b": [host(v), None, (v,)]},), {}),
    "named tuple": lambda v: ((Pair(there(v), there(v)),), {}),
    "keywords": lambda v: ((there(v),), {"b": host(v), "a": {"c": v}}),
    "static by name": lambda v: ((there(v),), {"n": 3}),
    "static and keywords": lambda v: ((host(v),), {"n": 3, "k": host(v)}),
    "nothing": lambda v: ((), {}),
}


@pytest.mark.parametrize("case", COVERED)
def test_the_third_call_is_done_in_one_go(case: str, general: list[int]) -> None:
    make = COVERED[case]
    fn = jitclient.jit(lambda *args, **kwargs: add_all(*args, **kwargs) + FACTOR, static_argnames="n")
    plain = jax.jit(lambda *args, **kwargs: add_all(*args, **kwargs) + FACTOR, static_argnames="n")
    for call, value in enumerate((1.0, 2.0, 3.0, 4.0, 2.0)):
        args, kwargs = make(value)
        found = np.asarray(fn(*args, **kwargs))
        args, kwargs = jax.tree.map(lambda leaf: np.asarray(leaf) if type(leaf) is Array else leaf, make(value))
        expected = np.asarray(plain(*args, **kwargs))
        assert (found.dtype, found.tolist()) == (expected.dtype, expected.tolist())
        assert len(general) == min(call + 1, 2)


def test_another_kind_of_key_is_another_program(general: list[int]) -> None:
    fn, plain = jitclient.jit(jax.random.bits), jax.jit(jax.random.bits)
    fry, rbg = (jax.random.key(1, impl=name) for name in ("threefry2x32", "rbg"))
    for key in (fry, fry, fry, rbg, rbg, rbg, fry, rbg):
        assert int(fn(key)) == int(plain(key))
    assert len(general) == 4
    placed = jax.device_put(fry, jax.devices()[0])
    assert int(fn(placed)) == int(plain(placed))
    assert len(general) == 5


def test_large_arrays_of_numpy_go_along_with_arrays_of_the_daemon(general: list[int]) -> None:
    fn, x, batch = jitclient.jit(lambda x, y: (x[0] + y[-1]) * 2), there(1.0), host(0.0, (50_000,), "float64")
    for value in range(6):
        batch[:] = value
        made = fn(x, batch)
        batch[:] = -1  # it has been read
        assert first(made) == (1.0 + value) * 2
    assert len(general) == 2
    assert [first(fn(x, host(value, (100_000,))[::2])) for value in (3.0, 4.0)] == [8.0, 10.0]


def test_large_arrays_of_numpy_alone(general: list[int]) -> None:
    fn, batch = jitclient.jit(lambda x, y: (x[-1] + y, x * 2)), host(0.0, (50_000,), "float64")
    for value in range(6):
        batch[:] = value
        one, two = map(np.asarray, fn(batch, 1))
        batch[:] = -1
        assert (float(one), float(two.min()), float(two.max())) == (value + 1, value * 2, value * 2)
    assert len(general) == 2
    assert [first(fn(host(value, (100_000,), "float64")[::2], 1)) for value in (3.0, 4.0)] == [4.0, 5.0]
    assert len(general) == 2


def test_results_have_their_tree(general: list[int]) -> None:
    fn = jitclient.jit(lambda x, y: {"both": (x + y, x - y), "none": None, "pair": Pair(x, y * 2)})
    for make in (host, there):
        for value in (1.0, 2.0, 3.0, 4.0):
            found = fn(make(value), make(1.0))
            assert jax.tree.map(first, found) == {
                "both": (value + 1, value - 1),
                "none": None,
                "pair": Pair(value, 2.0),
            }
    assert len(general) == 4


def test_kinds_of_calls_may_alternate(general: list[int]) -> None:
    fn = jitclient.jit(lambda x: x * 2)
    makes = [host, there, lambda v: host(v, (5,)), lambda v: v]
    for value in (1.0, 2.0, 3.0, 4.0):
        assert [first(fn(make(value))) for make in makes] == [value * 2] * 4
    assert len(general) == 8
    for _ in range(2):
        assert first(fn(np.float32(1))) == 2.0  # the fifth kind
    made = len(general)
    assert [first(fn(make(1.0))) for make in (there, there)] == [2.0, 2.0]
    assert len(general) == made


def test_static_arguments_by_position_are_compared(general: list[int]) -> None:
    fn = jitclient.jit(lambda n, x, m: x * n + m, static_argnums=(0, 2))
    assert [first(fn(2, there(3.0), 1)) for _ in range(4)] == [7.0] * 4
    assert len(general) == 2
    assert first(fn(3, there(3.0), 1)) == 10.0
    assert first(fn(2, there(3.0), 4)) == 10.0
    assert first(fn(True, there(3.0), 1)) == 4.0  # equal to 1, and another program


def test_static_objects_are_the_same_or_looked_up() -> None:
    class Config:
        def __init__(self, scale: float) -> None:
            self.scale = scale

        def __hash__(self) -> int:
            return 1

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Config) and self.scale == other.scale

    fn = jitclient.jit(lambda c, x: x * c.scale, static_argnums=0)
    one, other = Config(2.0), Config(5.0)
    assert [first(fn(one, there())) for _ in range(3)] == [2.0] * 3
    assert [first(fn(other, there())), first(fn(Config(2.0), there())), first(fn(other, there()))] == [5.0, 2.0, 5.0]


def test_donated_arrays_are_gone_each_time(general: list[int]) -> None:
    step = jitclient.jit(lambda state, x: jax.tree.map(lambda s: s + x, state), donate_argnums=0)
    state = {"a": there(0.0), "b": there(1.0)}
    for n in range(1, 6):
        before = state
        state = step(state, np.float32(1))
        assert [leaf.is_deleted() for leaf in before.values()] == [True, True]
        assert jax.tree.map(first, state) == {"a": n, "b": n + 1.0}
    assert len(general) == 2
    with pytest.raises(RuntimeError, match="deleted"):
        step(before, np.float32(1))
    twice = there()
    with pytest.raises(Exception, match="donate"):
        first(step({"a": twice, "b": twice}, np.float32(1)))
    assert first(step(state, np.float32(1))) == 6.0


# ---- what must not be missed


@pytest.fixture(params=[host, there], ids=["at once", "queued"])
def planned(request: pytest.FixtureRequest, general: list[int]) -> tuple[Any, Any]:
    """A function that has a plan, and what makes its argument."""
    fn = jitclient.jit(lambda x: x * FACTOR)
    assert [first(fn(request.param())) for _ in range(3)] == [2.0] * 3
    assert len(general) == 2
    return fn, request.param


def test_a_global_that_is_rebound(planned: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    fn, make = planned
    monkeypatch.setitem(globals(), "FACTOR", 3.0)
    assert [first(fn(make())) for _ in range(3)] == [3.0] * 3
    monkeypatch.undo()
    assert [first(fn(make())) for _ in range(3)] == [2.0] * 3


def test_a_global_that_is_deleted(planned: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    fn, make = planned
    monkeypatch.delitem(globals(), "FACTOR")
    with pytest.raises(NameError, match="FACTOR"):
        fn(make())


@pytest.mark.parametrize("of", ["jit", "vmap", "grad", "eval_shape"])
def test_a_trace_under_way(planned: tuple[Any, Any], of: str) -> None:
    fn, make = planned
    outer: Any = {
        "jit": lambda: jax.jit(lambda x: fn(x) + 1)(np.float32(1)),
        "vmap": lambda: jax.vmap(lambda x: fn(np.ones(3, np.float32)) + x)(np.zeros(2, np.float32)) + 1,
        "grad": lambda: jax.grad(lambda x: fn(x) * 1.5)(np.float32(1)),
        "eval_shape": lambda: jax.eval_shape(fn, np.float32(1)).dtype == "float32" and 3.0,
    }
    assert first(outer[of]()) == 3.0
    assert first(fn(make())) == 2.0


def test_settings_that_are_others(planned: tuple[Any, Any]) -> None:
    fn, _ = planned
    wide = host(dtype="float64")
    assert [fn(wide).dtype for _ in range(3)] == ["float32"] * 3
    with jax.enable_x64(True):
        assert [fn(wide).dtype for _ in range(3)] == ["float64"] * 3
    assert [fn(wide).dtype for _ in range(3)] == ["float32"] * 3
    with jax.disable_jit():
        assert isinstance(fn(jnp.ones(3)), jax.Array)
        assert not hasattr(fn(jnp.ones(3)), "handle_in")
    with jax.debug_nans(True), pytest.raises(FloatingPointError):
        fn(host(float("nan")))


@pytest.mark.parametrize("leaf", [host(1.0, (4,)), host(1, (3,), "int32"), 2.0, None, np.float32(2), host(1.0, (1, 3))])
def test_arguments_of_another_kind(planned: tuple[Any, Any], leaf: Any) -> None:
    fn, make = planned
    if leaf is None:
        with pytest.raises(TypeError):
            fn(leaf)
    else:
        assert np.asarray(fn(leaf)).tolist() == np.asarray(jax.jit(lambda x: x * FACTOR)(leaf)).tolist()
    with pytest.raises(TypeError):
        fn(make(), make())
    with pytest.raises(TypeError):
        fn("text")
    assert first(fn(make())) == 2.0


def test_numbers_that_do_not_fit(general: list[int]) -> None:
    fn = jitclient.jit(lambda n: n + 1)
    assert [int(fn(n)) for n in range(4)] == [1, 2, 3, 4]
    with pytest.raises(OverflowError):
        fn(1 << 40)
    assert int(fn(7)) == 8


def test_arrays_of_jax_that_differ(general: list[int]) -> None:
    fn = jitclient.jit(lambda x: x * FACTOR)
    weak, strong = jnp.asarray(1.0), jnp.asarray(np.float32(1))
    assert [fn(strong).weak_type for _ in range(3)] == [False] * 3
    assert [fn(weak).weak_type for _ in range(3)] == [True] * 3
    assert len(general) == 4
    placed = jax.device_put(np.float32(1), jax.devices()[0])
    assert [first(fn(placed)) for _ in range(3)] == [2.0] * 3
    gone = jnp.asarray(np.float32(1))
    gone.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        fn(gone)
    with jax.enable_x64(True):
        assert [fn(jnp.ones(2, jnp.float64)).dtype for _ in range(3)] == ["float64"] * 3


def test_an_array_that_was_deleted(planned: tuple[Any, Any]) -> None:
    fn, _ = planned
    gone = there()
    gone.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        fn(gone)


def test_an_array_of_an_earlier_stay(planned: tuple[Any, Any]) -> None:
    fn, _ = planned
    lost = there()
    lost._generation -= 1
    with pytest.raises(ArrayLost):
        fn(lost)


def test_a_static_argument_that_is_left_out() -> None:
    fn = jitclient.jit(lambda x, n=5: x * n, static_argnames="n")
    assert [first(fn(there(), n=3)) for _ in range(3)] == [3.0] * 3
    assert [first(fn(there())) for _ in range(3)] == [5.0] * 3
    assert first(fn(there(), n=3)) == 3.0


def test_other_threads(planned: tuple[Any, Any]) -> None:
    fn, make = planned
    found: list[float] = []

    def run(value: float) -> None:
        for _ in range(20):
            found.append(first(fn(make(value))) / value)

    threads = [threading.Thread(target=run, args=(float(n),)) for n in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [2.0] * 80


# ---- what fails


@pytest.mark.callbacks
def test_what_a_call_raises_is_told_each_time_alike(general: list[int]) -> None:
    def body(x: Any) -> Any:
        def back(v: Any) -> Any:
            if v[0] > 1:
                raise ValueError(f"too large: {v[0]}")
            return v

        return jax.pure_callback(back, x, x)

    fn = jitclient.jit(body)
    assert [first(fn(host())) for _ in range(3)] == [1.0] * 3
    assert len(general) == 2
    told = []
    for call in (fn, fn, jitclient.jit(body)):  # by its plan, and the first call of another
        with pytest.raises(Exception, match=r"too large: 2\.0") as raised:
            call(host(2.0))
        told.append((type(raised.value), str(raised.value), getattr(raised.value, "__notes__", None)))
    assert told[0] == told[1] == told[2]
    assert [first(fn(host())) for _ in range(2)] == [1.0] * 2


@pytest.mark.callbacks
def test_the_results_of_what_failed_are_dropped() -> None:
    fn = jitclient.jit(lambda x: (x, jax.pure_callback(lambda v: v if v[0] < 2 else 1 / 0, x, x)))
    for _ in range(3):
        fn(host())
    with process.session() as session:  # held, so that the background thread sends nothing meanwhile
        session.drops.clear()
        name = session.new_handles(0)
        with pytest.raises(Exception, match="division"):
            fn(host(2.0))
        gc.collect()
        assert {name, name + 1} <= set(session.drops)


@pytest.mark.parametrize(
    ("make", "step"),
    [
        pytest.param(
            host, "run", marks=pytest.mark.cpu(reason="calls of values are queued elsewhere, too"), id="at once"
        ),
        pytest.param(there, "call_later", id="queued"),
    ],
)
def test_the_results_of_an_interrupted_call_are_dropped(
    make: Callable[[], Any], step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fn, given = jitclient.jit(lambda x: (x + 1, x - 1)), make()
    for _ in range(3):
        fn(given)
    forward = getattr(Session, step)

    def interrupted(*given: Any, **named: Any) -> Any:
        forward(*given, **named)
        raise KeyboardInterrupt

    with process.session() as session:  # held, so that the background thread sends nothing meanwhile
        monkeypatch.setattr(Session, step, interrupted)
        name = session.next_handle
        session.drops.clear()
        with pytest.raises(KeyboardInterrupt):
            fn(given)
        gc.collect()
        assert {name, name + 1} <= set(session.drops)
    monkeypatch.undo()
    assert first(fn(given)) == 2.0


MEANWHILE: dict[str, Callable[[Session], None]] = {
    "another daemon": Session.forget_programs,
    "no connection": Session.disconnect,
}


@pytest.mark.parametrize("what", MEANWHILE)
@pytest.mark.parametrize("make", [host, lambda: host(1.0, (50_000,)), there], ids=["small", "large", "queued"])
def test_what_a_signal_handler_does_to_the_session_after_the_checks(
    make: Callable[[], Any], what: str, general: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    fn, given = jitclient.jit(lambda x: x + FACTOR), make()
    for _ in range(3):
        fn(given)
    assert len(general) == 2

    done: list[str] = []

    def meanwhile(session: Session, *rest: Any) -> Any:
        if not done:
            done.append(what)
            MEANWHILE[what](session)
        return make_handles(session, *rest)

    monkeypatch.setattr("jitclient.calls.plan.make_handles", meanwhile)
    monkeypatch.setattr("jitclient.calls.program.make_handles", meanwhile)
    assert first(fn(given)) == 1.0 + FACTOR
    assert done
    assert len(general) == 3


@pytest.mark.cpu(reason="calls of values are queued elsewhere, too")
@pytest.mark.parametrize("size", [3, 50_000])
def test_an_error_of_the_connection_holds_no_arguments(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    fn = jitclient.jit(lambda x: x + FACTOR)
    for _ in range(3):
        fn(host(1.0, (size,)))

    def silent(*_: Any, **__: Any) -> Any:
        raise DaemonSilent("for a test")

    monkeypatch.setattr(Session, "run", silent)
    given = host(1.0, (size,))
    alive = weakref.ref(given)
    gc.disable()
    try:
        with pytest.raises(DaemonSilent):
            fn(given)
        del given
        assert alive() is None
    finally:
        gc.enable()


def test_a_handle_of_another_stay_is_none_of_its_concern() -> None:
    gone = there()
    with process.session() as session:
        before, session.drops = session.drops, Drops()
        del gone
        gc.collect()
        assert not session.drops
        session.drops = before


def test_nobody_else_makes_handles() -> None:
    with pytest.raises(TypeError, match="device_put"):
        Array()


def test_a_connection_that_is_gone(planned: tuple[Any, Any], general: list[int]) -> None:
    fn, make = planned
    process.session().disconnect()
    assert first(fn(make())) == 2.0
    made = len(general)
    assert [first(fn(make())) for _ in range(3)] == [2.0] * 3
    assert len(general) - made <= 2


# ---- JAX's own rooms


@pytest.mark.parametrize("lacks", ["level", "settings"])
def test_where_jax_has_other_names_it_is_slower_and_right(
    monkeypatch: pytest.MonkeyPatch, general: list[int], lacks: str
) -> None:
    if lacks == "level":
        monkeypatch.setattr(internals, "trace_context_and_level", lambda: None)
    else:
        monkeypatch.setattr(context, "outside_of_trace_context", lambda: None)
    is_unchanged = unchanged.check()
    assert is_unchanged()
    for other in (jax.enable_x64(True), jax.debug_nans(True), jax.disable_jit()):
        with other:
            assert not is_unchanged()
    assert not jax.vmap(lambda x: x + is_unchanged())(np.zeros(1, np.float32))[0]
    assert is_unchanged()
    fn = jitclient.jit(lambda x: x * 2)
    assert [first(fn(there())) for _ in range(4)] == [2.0] * 4
    assert len(general) == 2


def test_settings_that_jax_reads_anew_are_all_compared() -> None:
    is_unchanged = unchanged.check()
    for name in context.OUTSIDE_OF_TRACE_CONTEXT:
        setting = getattr(jax, name.removeprefix("jax_"))
        for value in (True, "error", "rbg", "allow"):
            try:
                manager = setting(value)
                manager.__enter__()
            except (TypeError, ValueError):
                continue
            assert is_unchanged() == (setting.value == context._plain(setting.value) is None), name
            manager.__exit__(None, None, None)
            break
        else:
            raise AssertionError(name)
        assert is_unchanged()


def test_without_jax_the_environment_counts(run_script: Callable[..., Any]) -> None:
    assert (
        run_script(
            """
        import json, os, sys
        import numpy as np
        import jitclient
        from jitclient.calls.general_path import GeneralPath

        made, call = [], GeneralPath.call
        GeneralPath.call = lambda *given: made.append(1) or call(*given)

        @jitclient.jit
        def fn(x):
            return {"sum": x["a"] + x["b"], "both": [x["a"], 2]}

        def go():
            found = fn({"a": np.full(3, 2, np.float64), "b": 1.0})
            return [float(np.asarray(found["sum"])[0]), str(found["sum"].dtype), int(found["both"][1])]

        told = [go() for _ in range(4)]
        assert len(made) == 2, made
        os.environ["OF_NO_INTEREST"] = "1"
        told += [go() for _ in range(4)]
        assert len(made) == 3, made  # it is made again
        assert "jax" not in sys.modules
        os.environ["JAX_ENABLE_X64"] = "1"
        told += [go() for _ in range(3)]
        del os.environ["JAX_ENABLE_X64"]
        told += [go() for _ in range(3)]
        import jax
        told += [go() for _ in range(3)]
        with jax.enable_x64(True):
            told += [go() for _ in range(2)]
        made.clear()
        go(), go(), go()
        assert not made, made
        print(json.dumps(told))
        """,
            env={"JITSERVER_VERIFY": "off"},  # a trace would import jax
        )
        == [[3.0, "float32", 2]] * 8 + [[3.0, "float64", 2]] * 3 + [[3.0, "float32", 2]] * 6 + [[3.0, "float64", 2]] * 2
    )


# ---- what happens meanwhile


def test_threads_that_call_one_function_otherwise() -> None:
    fn = jitclient.jit(lambda x, *more, n: x * n + len(more), static_argnames="n")
    wrong: list[Any] = []
    together = threading.Barrier(3)

    def run(n: int) -> None:
        try:
            for turn in range(30):
                together.wait(60)
                found = [first(fn(np.float32(turn), *[np.float32(0)] * n, n=n)) for _ in range(3)]
                if found != [turn * n + n] * 3:
                    wrong.append((turn, n, found))
        except Exception as error:
            wrong.append(error)
            together.abort()

    threads = [threading.Thread(target=run, args=(n,)) for n in (2, 3, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_settings_that_another_thread_changes(general: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    fn = jitclient.jit(lambda x: x * 2)
    wide, call = host(dtype="float64"), Program.call

    def meanwhile(*given: Any) -> Any:
        result = call(*given)
        if len(general) == 2:
            jax.config.update("jax_enable_x64", True)
        return result

    assert fn(wide).dtype == "float32"
    monkeypatch.setattr(Program, "call", meanwhile)
    try:
        assert fn(wide).dtype == "float32"
        assert [fn(wide).dtype for _ in range(3)] == ["float64"] * 3
    finally:
        jax.config.update("jax_enable_x64", False)
    assert [fn(wide).dtype for _ in range(3)] == ["float32"] * 3


@pytest.mark.parametrize("value", [lambda: host(), lambda: 2.0, lambda: jnp.ones(3)], ids=["numpy", "number", "jax"])
def test_donation_by_value_beside_an_array_of_the_daemon(value: Callable[[], Any]) -> None:
    fn = jitclient.jit(lambda s, m: (s + m, m * 2), donate_argnums=(0, 1))
    state: Any = there(0.0)
    for n in range(1, 5):
        given = value()
        before, (state, double) = state, fn(state, given)
        assert first(state) == n * first(double) / 2
        assert before.is_deleted()
        assert not isinstance(given, jax.Array) or given.is_deleted()


class Meanwhile(Drops):
    """Does something when it is asked for what was dropped, as a signal handler might."""

    def __init__(self, action: Callable[[], Any]) -> None:
        super().__init__([1])
        self.action = action

    def popleft(self) -> int:
        self.action()
        return super().popleft()


@pytest.fixture
def drops_do() -> Iterator[Callable[..., None]]:
    session = process.session()
    yield lambda action: setattr(session, "drops", Meanwhile(action))
    session.drops = Drops()


def test_a_signal_handler_that_calls(planned: tuple[Any, Any], drops_do: Callable[..., None]) -> None:
    fn, make = planned
    step = jitclient.jit(lambda x: x + 1, donate_argnums=0)
    state = [there(0.0)]
    for _ in range(3):
        state[0] = step(state[0])

    def handler() -> None:
        process.session().drops = Drops()
        state[0] = step(state[0])

    for value in (2.0, 3.0, 4.0):
        drops_do(handler)
        assert first(fn(make(value))) == value * 2
    assert first(state[0]) == 6.0


def test_two_interrupts_leave_the_session_well(planned: tuple[Any, Any], drops_do: Callable[..., None]) -> None:
    fn, make = planned

    def interrupted() -> None:
        raise KeyboardInterrupt

    with process.session() as session:
        drops_do(interrupted)
        session.drops.extend = lambda _: interrupted()  # type: ignore[method-assign,assignment]
        with pytest.raises(KeyboardInterrupt):
            first(fn(make()))
        session.drops = Drops()
    assert [first(fn(make(value))) for value in (1.0, 2.0, 3.0)] == [2.0, 4.0, 6.0]


@pytest.mark.parametrize("is_planned", [False, True])
def test_an_interrupt_of_what_is_about_to_be_sent(is_planned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    fn, x, batch = jitclient.jit(lambda x, y: x[0] + y[-1]), there(1.0), host(2.0, (50_000,))
    for _ in range(3 if is_planned else 1):
        fn(x, batch)
    with process.session() as session:
        gone = there()
        name = gone._handle
        session.drops.clear()
        del gone
        monkeypatch.setattr(type(session), "_advance", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fn(x, batch)
        monkeypatch.undo()
        assert name in session.drops
    assert [first(fn(x, batch)) for _ in range(3)] == [3.0] * 3  # and does not wait for what was never sent


def test_an_interrupt_of_what_is_being_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    fn = jitclient.jit(lambda x: x + 1)
    session, state = process.session(), there(0.0)
    with session:
        for _ in range(5):
            state = fn(state)
        session.disconnect()
        monkeypatch.setattr("jitclient.session.link.Blocks", lambda *_: 1 / 0)
        monkeypatch.setattr(type(session), "_joined", False, raising=False)
        with pytest.raises(ZeroDivisionError):
            first(state)
        assert session.connection is None
        monkeypatch.undo()
    assert first(state) == 5.0


def test_what_was_dropped_without_a_connection_is_told_with_the_next(until: Callable[..., Any]) -> None:
    session = process.session()
    gone = there()
    with session:
        session.disconnect()
        del gone
        gc.collect()
        assert session.drops
        session.ask(Verb.STATUS, None, Status)
    until(lambda: not session.drops, "the daemon to be told")


def test_many_arrays_are_put_in_several_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[int] = []
    run = Session.run

    def counting(self: Session, message: Run, *given: Any, **named: Any) -> Any:
        runs.append(len(message.puts))
        return run(self, message, *given, **named)

    monkeypatch.setattr(puts, "MAX_ITEMS", 4)
    monkeypatch.setattr(Session, "run", counting)
    arrays = jitclient.device_put([host(number, (20_000,)) for number in range(10)])
    assert runs == [4, 4, 2]
    assert [first(array) for array in arrays] == list(range(10))
