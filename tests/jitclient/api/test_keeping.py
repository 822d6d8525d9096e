"""`keep` in one process, with clients that come one after another: what is kept, what is found, what is refused."""

import collections
import configparser
import dataclasses
import functools
import gc
import itertools
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import jitclient
from jitclient.api import keeping
from jitclient.calls.puts import put
from jitclient.capture.ambient.inputs import message_of
from jitclient.core.cpu import cpu_features
from jitclient.core.settings import Settings
from jitclient.errors import DaemonDraining
from jitclient.session import process
from jitclient.session.session import Session
from jitclient.wire.messages import Run, Verb
from jitclient.wire.named_arrays import Forget, Holdings, KeptInfo

pytestmark = pytest.mark.usefixtures("daemon")

_numbers = itertools.count()
SCALE = 2.0
SCALAR = jax.ShapeDtypeStruct((), np.float32)


@pytest.fixture
def name() -> Iterator[str]:
    """A name of the test's own."""
    made = f"test {next(_numbers)}"
    yield made
    process.session().ask(Verb.FORGET, Forget(made), list[KeptInfo])


@pytest.fixture
def another_client(daemon: str) -> Iterator[Callable[[], None]]:
    """Makes this process another client, as its next run is."""
    before, made = process.current, []
    yield lambda: made.append(jitclient.connect(daemon))
    for session in made:
        session.close()
    process.current = before


def counter(monkeypatch: pytest.MonkeyPatch, name: str) -> Callable[[], int]:
    """Return a function that returns how often a function of `keeping` was called since the last time."""
    times = [0]
    real = getattr(keeping, name)

    def noting(*args: Any) -> Any:
        times[0] += 1
        return real(*args)

    monkeypatch.setattr(keeping, name, noting)

    def since() -> int:
        found, times[0] = times[0], 0
        return found

    return since


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How often functions were run by `keep` since the last time."""
    return counter(monkeypatch, "_recording_reads")


@pytest.fixture
def puts(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many trees were published since the last time."""
    return counter(monkeypatch, "_publish")


def holdings() -> Holdings:
    found: Holdings = process.session().ask(Verb.ARRAYS, None, Holdings)
    return found


def settled() -> int:
    """Bytes that live on the daemon once it knows of all that went."""
    gc.collect()
    process.session().run(Run(), [])
    return holdings().nbytes


def kept_as(name: str) -> KeptInfo:
    [found] = [one for one in holdings().kept if one.name == name]
    return found


class Pair(NamedTuple):
    left: Any
    right: Any


@functools.partial(jax.tree_util.register_dataclass, data_fields=["w", "b"], meta_fields=["name"])
@dataclasses.dataclass
class Layer:
    w: Any
    b: Any
    name: str


class Plain:
    """No tree to anybody."""


def same(ours: Any, theirs: Any) -> None:
    our_leaves, our_tree = jax.tree.flatten(ours)
    their_leaves, their_tree = jax.tree.flatten(theirs)
    assert our_tree == their_tree
    for mine, yours in zip(our_leaves, their_leaves, strict=True):
        assert type(mine) is jitclient.Array
        if jnp.issubdtype(getattr(yours, "dtype", np.int32), jax.dtypes.prng_key):
            assert mine.dtype == yours.dtype
            np.testing.assert_array_equal(mine.key_data(), jax.random.key_data(yours))
        else:
            expected = jax.device_put(yours) if not isinstance(yours, jax.Array) else yours
            assert (mine.shape, mine.dtype) == (expected.shape, expected.dtype)
            assert np.asarray(mine).tobytes() == np.asarray(expected).tobytes()


# ---- functions


def load() -> Any:
    return {"w": np.full((4, 4), SCALE, np.float32), "b": [np.arange(3), None]}


def test_a_function_runs_once_for_all_clients(
    name: str, runs: Callable[[], int], another_client: Callable[[], None]
) -> None:
    same(jitclient.keep(name, load), load())
    assert runs() == 1
    for _ in range(2):
        another_client()
        same(jitclient.keep(name, load), load())
    assert runs() == 0
    assert kept_as(name).arrays == 2


def test_a_function_whose_key_changed_runs(name: str, runs: Callable[[], int], monkeypatch: pytest.MonkeyPatch) -> None:
    jitclient.keep(name, load)
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    assert float(jitclient.keep(name, load)["w"][0, 0]) == 3
    assert runs() == 2
    monkeypatch.setitem(globals(), "SCALE", 2.0)
    assert float(jitclient.keep(name, load)["w"][0, 0]) == 2  # a name holds what was put last, and no more
    assert runs() == 1


def test_settings_are_part_of_the_key(name: str, runs: Callable[[], int]) -> None:
    def doubles() -> Any:
        return np.arange(3.0)

    assert jitclient.keep(name, doubles).dtype == np.float32
    with jax.enable_x64(True):
        assert jitclient.keep(name, doubles).dtype == np.float64
    assert runs() == 2


def make_layers() -> Any:
    return {"one": Layer(np.ones(2, np.float32), np.zeros(3, np.float32), "first"), "pair": Pair(np.arange(2), ())}


def test_users_classes_come_back_as_their_own(
    name: str, runs: Callable[[], int], another_client: Callable[[], None]
) -> None:
    jitclient.keep(name, make_layers)
    another_client()
    found = jitclient.keep(name, make_layers)
    assert runs() == 1
    assert (type(found["one"]), found["one"].name, type(found["pair"])) == (Layer, "first", Pair)
    same(found, make_layers())


def test_a_tree_of_a_class_that_the_function_makes_is_kept_for_its_arrays(name: str, runs: Callable[[], int]) -> None:
    def local() -> Any:
        made = collections.namedtuple("made", "x")
        return made(np.arange(4))

    with pytest.warns(RuntimeWarning, match="runs each time"):
        first = jitclient.keep(name, local)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # one warning is enough
        second = jitclient.keep(name, local)
    assert runs() == 2
    assert np.asarray(first.x).tolist() == np.asarray(second.x).tolist() == [0, 1, 2, 3]


def test_what_the_function_raises_is_raised_and_the_name_holds_what_it_held(name: str) -> None:
    def fails() -> Any:
        raise KeyError("no such file")

    jitclient.keep(name, load)
    with pytest.raises(KeyError, match="no such file"):
        jitclient.keep(name, fails)
    assert kept_as(name).label.startswith("{'b': [i32[3], None]")


def test_a_function_may_return_handles_and_jax_arrays(
    name: str, runs: Callable[[], int], another_client: Callable[[], None]
) -> None:
    @jitclient.jit
    def initial(key: Any) -> Any:
        return jax.random.normal(key, (8,))

    def make() -> Any:
        return initial(jax.random.key(0)), jnp.arange(3), jax.random.key(1)

    first = jitclient.keep(name, make)
    another_client()
    second = jitclient.keep(name, make)
    assert runs() == 1
    same(second, (jnp.asarray(np.asarray(first[0])), jnp.arange(3), jax.random.key(1)))


def test_a_jitted_function_is_a_function(name: str, runs: Callable[[], int]) -> None:
    @jitclient.jit
    def made() -> Any:
        return jnp.arange(4)

    for _ in range(2):
        assert jitclient.keep(name, made).tolist() == [0, 1, 2, 3]
    assert runs() == 1


# ---- functions that read the world


def test_a_function_that_says_what_it_reads_runs_when_that_changes(
    name: str, runs: Callable[[], int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "data.npy"
    monkeypatch.setenv("FACTOR", "2")

    def read() -> Any:
        import os

        return np.load(path) * np.int64(os.environ["FACTOR"])

    def found() -> Any:
        return jitclient.keep(name, read, deps=[path, "FACTOR"]).tolist()

    np.save(path, np.arange(3))
    assert (found(), found(), runs()) == ([0, 2, 4], [0, 2, 4], 1)
    np.save(path, np.arange(3) + 1)
    assert (found(), runs()) == ([2, 4, 6], 1)
    monkeypatch.setenv("FACTOR", "3")
    assert (found(), runs()) == ([3, 6, 9], 1)


def test_a_function_that_reads_a_file_and_does_not_say_so_runs_each_time(
    name: str, puts: Callable[[], int], tmp_path: Path
) -> None:
    path = tmp_path / "data.npy"
    np.save(path, np.arange(3))
    with pytest.warns(RuntimeWarning, match=r"runs each time.*numpy\.load is read from outside.*deps=\["):
        assert jitclient.keep(name, lambda: np.load(path)).tolist() == [0, 1, 2]
    assert jitclient.keep(name, lambda: np.load(path)).tolist() == [0, 1, 2]
    assert puts() == 1  # the same arrays
    np.save(path, np.arange(3) + 1)
    assert jitclient.keep(name, lambda: np.load(path)).tolist() == [1, 2, 3]
    assert puts() == 1


def test_what_installed_code_opens_is_noticed(name: str, tmp_path: Path) -> None:
    path = tmp_path / "sizes.ini"
    path.write_text("[size]\nn = 3\n")

    def read() -> Any:
        parser = configparser.ConfigParser()
        parser.read(path)
        return np.arange(parser.getint("size", "n"))

    with pytest.warns(RuntimeWarning, match=message_of(f"file {str(path)!r}")):
        assert jitclient.keep(name, read).size == 3
    path.write_text("[size]\nn = 4\n")
    assert jitclient.keep(name, read).size == 4


@pytest.mark.callbacks
def test_what_a_callback_opens_is_noticed(name: str, tmp_path: Path) -> None:
    path = tmp_path / "n"
    path.write_text("3")
    scaled = jitclient.jit(lambda x: x * jax.pure_callback(lambda: np.float32(path.read_text()), SCALAR))
    with pytest.warns(RuntimeWarning, match=message_of(f"file {str(path)!r}")):
        assert jitclient.keep(name, lambda: scaled(np.float32(2))) == 6
    path.write_text("4")
    assert jitclient.keep(name, lambda: scaled(np.float32(2))) == 8


def test_our_own_reads_within_the_function_never_count(name: str, runs: Callable[[], int]) -> None:
    for _ in range(2):
        cpu_features.cache_clear()  # as in a process whose first use of jax is in the function
        jitclient.keep(name, lambda: jax.jit(lambda x: x + 1)(np.arange(3)))
    assert runs() == 1


def test_inputs_that_change_while_the_function_runs_give_no_key(
    name: str, runs: Callable[[], int], tmp_path: Path
) -> None:
    path = tmp_path / "n"
    path.write_text("1")

    def read() -> Any:
        n = int(path.read_text())
        path.write_text(str(n + 1))
        return np.arange(n)

    with pytest.warns(RuntimeWarning, match="changed during the run"):
        assert jitclient.keep(name, read, deps=[path]).size == 1
    assert jitclient.keep(name, read, deps=[path]).size == 2
    assert runs() == 2


def test_empty_deps_say_that_it_does_not_matter(name: str, runs: Callable[[], int], tmp_path: Path) -> None:
    path = tmp_path / "data.npy"
    np.save(path, np.arange(3))
    for _ in range(2):
        assert jitclient.keep(name, lambda: np.load(path), deps=[]).tolist() == [0, 1, 2]
    assert runs() == 1


# ---- trees


def test_a_tree_that_is_there_already_is_not_sent_again(
    name: str, puts: Callable[[], int], another_client: Callable[[], None]
) -> None:
    tree = load()
    same(jitclient.keep(name, tree), tree)
    another_client()
    same(jitclient.keep(name, load()), tree)
    assert puts() == 1
    tree["w"][0, 0] = 7
    same(jitclient.keep(name, tree), tree)
    assert puts() == 1
    assert kept_as(name).arrays == 2


def test_trees_of_other_shapes_or_types_are_others(name: str, puts: Callable[[], int]) -> None:
    flat = np.zeros(4, np.float32)
    for tree in (flat, flat.reshape(2, 2), flat.view(np.int32), [flat], (flat,), 0.0, 0, False):
        same(jitclient.keep(name, tree), tree)
    assert puts() == 8


DTYPES = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128", "bfloat16"),
    *(name for name in dir(ml_dtypes) if name.startswith(("float8", "int", "uint")) and hasattr(jnp, name)),
]


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype(dtype: str, name: str, another_client: Callable[[], None]) -> None:
    with jax.enable_x64(True):
        value = np.random.default_rng(0).integers(0, 2, (3, 5)).astype(jnp.dtype(dtype))
        tree = [value, value[:0]]
        for give in (tree, lambda: tree):
            same(jitclient.keep(name, give), tree)
            another_client()
            found = jitclient.keep(name, give)
            same(found, tree)
            if not dtype.endswith("int1"):  # of which XLA makes no copies
                step = jitclient.jit(lambda x: x, donate_argnums=0)
                same([step(found[0]), found[1]], tree)
            same(jitclient.keep(name, give), tree)


@pytest.mark.parametrize("tree", [{}, (), None, [{}, ()]], ids=repr)
def test_trees_without_leaves(tree: Any, name: str, runs: Callable[[], int]) -> None:
    assert jitclient.keep(name, tree) == tree
    for _ in range(2):
        assert jitclient.keep(name, lambda: tree) == tree
    assert runs() == 1
    assert kept_as(name).arrays == 0


def test_leaves_that_are_handles_are_not_copied(name: str, another_client: Callable[[], None]) -> None:
    x = jitclient.device_put(np.arange(1000, dtype=np.float32))
    before = settled()
    kept_tree = jitclient.keep(name, {"x": x, "again": x})
    assert kept_tree["x"] is x
    assert settled() == before
    assert kept_as(name).nbytes == 4000
    double = jitclient.jit(lambda x: x * 2)(x)
    mixed = jitclient.keep(name, [double, np.arange(3)])  # still under way when it is kept
    assert mixed[0] is double
    assert kept_as(name).nbytes == 4000 + 12


# ---- what is kept, by whichever process


def test_what_is_kept_is_there_for_who_knows_the_name(
    name: str, another_client: Callable[[], None], runs: Callable[[], int]
) -> None:
    with pytest.raises(KeyError, match=name):
        jitclient.kept(name)
    params = {"layer": Layer(jitclient.device_put(np.ones(3, np.float32)), 2.5, "first"), "step": 7}
    jitclient.keep(name, params, ttl=50.0)
    another_client()
    found = jitclient.kept(name)
    same(found, {"layer": Layer(np.ones(3, np.float32), 2.5, "first"), "step": 7})
    assert kept_as(name).ttl == 50
    jitclient.keep(name, load)
    another_client()
    same(jitclient.kept(name), load())
    assert runs() == 1


def test_what_nobody_else_can_name_is_there_for_its_function(name: str, another_client: Callable[[], None]) -> None:
    jitclient.keep(name, make_layers)
    another_client()
    with pytest.raises(jitclient.CaptureError, match="with classes that this program cannot identify"):
        jitclient.kept(name)
    same(jitclient.keep(name, make_layers), make_layers())
    local = collections.namedtuple("local", "x")
    jitclient.keep(name, local(np.arange(3)))
    with pytest.raises(jitclient.CaptureError, match="with classes that this program cannot identify"):
        jitclient.kept(name)


# ---- what becomes of handles


@pytest.mark.parametrize("kind", ["float32", "weak", "key"])
def test_a_donated_handle_is_dead_and_the_kept_array_is_not(kind: str, name: str) -> None:
    value = {"float32": np.arange(6, dtype=np.float32), "weak": 1.5, "key": jax.random.key(3)}[kind]
    step = jitclient.jit(lambda x: x, donate_argnums=0)
    for _ in range(3):
        x = jitclient.keep(name, [value])[0]
        same([step(x)], [value])
        assert x.is_deleted()
    same(jitclient.keep(name, [value]), [value])
    x = jitclient.keep(name, [value])[0]
    x.delete()
    same(jitclient.keep(name, [value]), [value])


def test_what_several_hold_stays_whole_also_when_the_name_is_forgotten(
    name: str, another_client: Callable[[], None]
) -> None:
    tree = np.arange(6, dtype=np.float32)
    mine = jitclient.keep(name, tree)
    another_client()
    theirs = jitclient.keep(name, tree)
    process.session().ask(Verb.FORGET, Forget(name), list[KeptInfo])
    step = jitclient.jit(lambda x: x + 1, donate_argnums=0)
    same(step(theirs), tree + 1)
    same(mine, tree)


def test_a_handle_that_was_donated_after_it_was_kept(name: str) -> None:
    step = jitclient.jit(lambda x: x + 1, donate_argnums=0)
    x = jitclient.device_put(np.arange(6, dtype=np.float32))
    jitclient.keep(name, {"x": x})
    step(x)
    assert x.is_deleted()
    with pytest.raises(RuntimeError, match="deleted"):
        jitclient.keep(name, {"x": x})
    assert kept_as(name).arrays == 1


def test_what_a_new_session_finds_is_not_taken_for_its_next_results(
    name: str, daemon: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    jitclient.keep(name, [np.float32(7)])
    session = Session(Settings(address=daemon))
    with session:
        session.new_handles(3)  # of arrays that are lost below
    ask_once, failing = session.ask_once, iter([True])

    def drains(verb: Verb, *rest: Any, **more: Any) -> Any:
        if verb is Verb.FIND and next(failing, False):
            ask_once(Verb.GOODBYE, None, None)
            session.disconnect()
            raise DaemonDraining("the daemon is stopping")
        return ask_once(verb, *rest, **more)

    monkeypatch.setattr(session, "ask_once", drains)
    found = keeping._find(session, keeping._Name(name))
    assert found is not None
    [kept] = found[0]
    others = put(session, [np.float32(n) for n in range(5)], [kept.spec] * 5)
    assert [float(each) for each in (kept, *others)] == [7, 0, 1, 2, 3, 4]
    session.close()


def test_dropped_handles_free_nothing_that_is_kept(name: str, until: Callable[..., Any]) -> None:
    tree = np.arange(6, dtype=np.float32)
    jitclient.keep(name, tree)
    other = jitclient.device_put(tree)
    del other
    float(jitclient.device_put(np.float32(1)))
    same(jitclient.keep(name, tree), tree)


# ---- mistakes


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        (("", {}), {}, "the name must be a non-empty string"),
        ((3, {}), {}, "the name must be a non-empty string"),
        (("x", {"a": [1, "text"]}), {}, r"keep\('x'\): leaf \['a'\]\[1\] is neither an array .* type str"),
        (("x", Plain()), {}, r"keep\('x'\): the tree is neither an array"),
        (("x", lambda: "text"), {}, r"keep\('x'\): the tree is neither an array"),
        (("x", {}), {"deps": [Path("f")]}, "only for functions"),
        (("x", load), {"deps": "f"}, "a sequence of inputs"),
    ],
)
def test_mistakes(args: Any, kwargs: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        jitclient.keep(*args, **kwargs)
    assert all(one.name != "x" for one in holdings().kept)


@pytest.mark.parametrize("ttl", [0, -1, float("nan"), float("inf"), "1 day"])
def test_a_ttl_that_makes_no_sense(ttl: Any) -> None:
    with pytest.raises(ValueError, match="ttl must be a number of seconds above 0"):
        jitclient.keep("x", {}, ttl=ttl)


def test_a_callable_that_is_a_tree_is_a_tree(name: str) -> None:
    partial = jax.tree_util.Partial(jnp.add, np.arange(3))
    found = jitclient.keep(name, partial)
    assert type(found) is jax.tree_util.Partial
    assert kept_as(name).arrays == 1


def test_a_function_keeps_while_its_caller_traces_it_as_under_jax_jit(name: str) -> None:
    @jitclient.jit
    def shifted(x: Any) -> Any:
        return x + jitclient.keep(name, np.ones(2, np.float32))

    assert shifted(np.zeros(2, np.float32)).tolist() == [1, 1]
    assert jitclient.kept(name).tolist() == [1, 1]
    process.session().ask(Verb.FORGET, Forget(name), list[KeptInfo])
    assert shifted(np.ones(2, np.float32)).tolist() == [2, 2]
    with pytest.raises(KeyError):  # nor does a call keep anything under `jax.jit` that is not traced
        jitclient.kept(name)
