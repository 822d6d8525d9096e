"""Arrays of the client's own jax that a program is given again: their bytes travel no more, and are never old."""

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jitclient
from jitclient import Array
from jitclient.calls import arguments, copies, program, puts
from jitclient.calls.general_path import GeneralPath
from jitclient.session import process
from jitclient.session.session import Session
from jitclient.wire.array_transport import allocate

SIZE = 40_000  # float32s: too large to ride in a message


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    yield
    gc.collect()


@pytest.fixture
def sent(daemon: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How each leaf of each call of the general way travels, and of what is put."""
    kinds: list[str] = []

    def noting(leaves: Any, *more: Any) -> Any:
        values = arguments.outgoing(leaves, *more)
        kinds.extend("name" if type(value) is int else "bytes" for value in values)
        return values

    monkeypatch.setattr(program, "outgoing", noting)
    monkeypatch.setattr(
        puts, "outgoing", lambda *given: kinds.extend(["put"] * len(given[0])) or arguments.outgoing(*given)
    )
    return kinds


def first(result: Any) -> float:
    return float(np.asarray(result).ravel()[0])


def array(value: float = 1.0, size: int = SIZE) -> Any:
    return jnp.full(size, value)


def test_the_bytes_of_what_is_given_again_stay_there(sent: list[str]) -> None:
    fn, x = jitclient.jit(lambda x: x * 2), array(3)
    for _ in range(5):
        assert np.asarray(fn(x)).tolist() == [6.0] * SIZE
    assert sent == ["bytes", "put", "name"]  # and then the plan names it


def test_a_tree_is_put_in_one_go(sent: list[str]) -> None:
    fn = jitclient.jit(lambda p, n: sum(jnp.sum(leaf) for leaf in jax.tree.leaves(p)) + n)
    tree = {"a": [array(1), array(2)], "b": (array(3), jnp.float32(1))}
    tree["c"] = tree["a"][0]
    for n in range(5):
        assert float(fn(tree, n)) == 7 * SIZE + 1 + n
    assert sent == ["bytes"] * 6 + ["put"] * 3 + ["name"] * 3 + ["bytes", "name", "bytes"]


def test_arrays_that_come_once_are_not_kept(sent: list[str]) -> None:
    fn = jitclient.jit(lambda x: x * 2)
    for value in range(6):
        assert first(fn(array(value))) == value * 2
    assert sent == ["bytes"] * 6


def test_one_array_for_several_programs_is_no_reason(sent: list[str]) -> None:
    train, evaluate = jitclient.jit(lambda x: x * 2), jitclient.jit(lambda x: x + 1)
    for value in range(3):
        x = array(value)
        assert (first(train(x)), first(evaluate(x))) == (value * 2, value + 1)
    assert "put" not in sent
    assert [first(train(x)), first(evaluate(x))] == [4, 3]  # but a copy serves all
    assert sent[-3:] == ["put", "name", "name"]


@pytest.mark.parametrize("kind", ["small", "key", "numpy", "number"])
def test_what_has_no_copy(kind: str, sent: list[str]) -> None:
    given: Any = {
        "small": lambda: jnp.zeros(3),
        "key": lambda: jax.random.split(jax.random.key(0), 1000),
        "numpy": lambda: np.zeros(SIZE, np.float32),
        "number": lambda: 1.0,
    }[kind]()
    fn = jitclient.jit(lambda x: x)
    for _ in range(5):
        fn(given)
    assert set(sent) == {"bytes"}


SHARED: dict[str, Callable[[Any], Any]] = {
    "device_put": jax.device_put,
    "dlpack": jax.dlpack.from_dlpack,
    "callback": lambda source: jax.make_array_from_callback(
        source.shape, jax.sharding.SingleDeviceSharding(jax.devices()[0]), lambda index: source
    ),
}


@pytest.mark.parametrize("way", SHARED)
def test_memory_that_others_write_is_never_old(way: str, daemon: str) -> None:
    source = allocate(SIZE * 4).view(np.float32)
    source[:] = 0
    x = SHARED[way](source)
    assert x.unsafe_buffer_pointer() == source.ctypes.data
    fn = jitclient.jit(lambda x: x * 2)
    for value in range(6):
        source[:] = value
        assert float(np.asarray(fn(x))[-1]) == value * 2


def test_a_copy_goes_with_its_array(daemon: str) -> None:
    fn, x = jitclient.jit(lambda x: x[0]), array()
    for _ in range(4):
        float(fn(x))
    handle = weakref.ref(copies.copy_of(x, process.session()))
    assert type(handle()) is Array
    del x
    gc.collect()
    assert handle() is None
    assert not [given for given in copies._passed.values() if given.copy is not None]


def test_what_was_deleted_raises_as_in_jax(daemon: str) -> None:
    fn, x = jitclient.jit(lambda x: x * 2), array()
    for _ in range(4):
        fn(x)
    x.delete()
    for call in (fn, jax.jit(lambda x: x * 2)):
        with pytest.raises(RuntimeError, match="deleted"):
            call(x)
    assert copies._passed[id(x)].copy is None


def test_what_is_donated_travels_and_is_gone(sent: list[str]) -> None:
    fn, read, x = jitclient.jit(lambda x: x + 1, donate_argnums=0), jitclient.jit(lambda x: x[0]), array()
    for _ in range(3):
        read(x)
    assert first(fn(x)) == 2
    assert sent[-1] == "bytes"
    assert x.is_deleted()
    with pytest.raises(RuntimeError, match="deleted"):
        read(x)
    for _ in range(3):
        assert first(fn(array(5))) == 6
    assert sent[-1] == "bytes"


def test_another_array_in_the_same_place_misses_the_plan(sent: list[str]) -> None:
    fn, x, y = jitclient.jit(lambda x: x * 2), array(1), array(2)
    for _ in range(4):
        assert first(fn(x)) == 2
    assert first(fn(y)) == 4
    assert first(fn(x)) == 2
    assert first(fn(x.astype(jnp.int32))) == 2


def test_a_copy_of_another_shape_misses_the_plan(daemon: str) -> None:
    fn, x, y = jitclient.jit(lambda x: x.sum()), array(1), array(2, 2 * SIZE)
    for _ in range(4):
        assert first(fn(y)) == 4 * SIZE
    for _ in range(4):
        assert first(fn(x)) == SIZE
    assert [first(fn(given)) for given in (y, x, y)] == [4 * SIZE, SIZE, 4 * SIZE]


@pytest.mark.cpu(reason="calls of values are queued elsewhere, too")
def test_calls_on_copies_alone_are_waited_for(daemon: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # As by value: what the program holds itself is not lost with a daemon, nor is what was made of it.
    queued: list[int] = []
    later = Session.call_later
    monkeypatch.setattr(Session, "call_later", lambda *given: queued.append(1) or later(*given))
    fn, x, y = jitclient.jit(lambda x, y: x + y), array(3), array(4)
    for _ in range(5):
        fn(x, y)
    assert not queued
    fn(x, jitclient.device_put(np.zeros(SIZE, np.float32)))
    assert queued


def test_plans_name_the_copies(sent: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    general: list[int] = []
    call = GeneralPath.call
    monkeypatch.setattr(GeneralPath, "call", lambda *given: general.append(1) or call(*given))
    fn, x, y = jitclient.jit(lambda p, y, n: p["w"] * y + n), array(3), jitclient.device_put(np.ones(SIZE, np.float32))
    for n in range(6):
        assert first(fn({"w": x}, y, n)) == 3 + n
    assert len(general) == 2


def test_a_fresh_array_in_between_costs_no_plan(monkeypatch: pytest.MonkeyPatch, daemon: str) -> None:
    general: list[int] = []
    call = GeneralPath.call
    monkeypatch.setattr(GeneralPath, "call", lambda *given: general.append(1) or call(*given))
    fn, x = jitclient.jit(lambda p: p.sum()), array(3)
    for value in (7, 8):
        assert first(fn(array(value))) == value * SIZE
    for _ in range(4):
        assert first(fn(x)) == 3 * SIZE
    assert len(general) == 4
    assert first(fn(array(9))) == 9 * SIZE
    assert len(general) == 5
    assert [first(fn(x)) for _ in range(3)] == [3 * SIZE] * 3
    assert len(general) == 5


def test_another_daemon_is_sent_them_again(
    new_daemon: Any, short_path: Any, run_script: Callable[..., Any], cli: Any
) -> None:
    env = {"JITSERVER_CACHE_DIR": str(short_path / "cache")}
    address = f"unix:{short_path}/d.sock"
    with new_daemon(address, env=env) as first:
        try:
            told = run_script(
                """
                import json, os, signal, sys, time
                import jax.numpy as jnp
                import jitclient
                import numpy as np
                first = lambda made: float(np.asarray(made)[0])
                fn, x = jitclient.jit(lambda x: x * 2), jnp.full(40_000, 4.0)
                told = [first(fn(x)) for _ in range(4)]
                os.kill(int(sys.argv[1]), signal.SIGKILL)
                told += [first(fn(x)) for _ in range(4)]
                from jitclient.calls import copies
                told.append(copies.copy_of(x, jitclient.session.process.session()) is not None)
                print(json.dumps(told))
                """,
                str(first.pid),
                env={"JITSERVER_ADDRESS": address, "JITSERVER_AUTOSTART": "1", **env},
            )
        finally:  # the one that the client has started
            assert cli("stop", env={"JITSERVER_ADDRESS": address}).returncode == 0
    assert told == [8.0] * 8 + [True]


def test_a_forked_child_reads_them(daemon: str, run_script: Callable[..., Any]) -> None:
    told = run_script(
        """
        import json, os, warnings
        import jax.numpy as jnp
        import numpy as np
        import jitclient
        warnings.simplefilter("ignore")
        fn, x = jitclient.jit(lambda x: x * 2), jnp.full(40_000, 4.0)
        told = [float(np.asarray(fn(x))[0]) for _ in range(4)]
        ours, theirs = os.pipe()
        child = os.fork()
        if child == 0:
            told = float(np.asarray(fn(x))[0])
            del x
            os.write(theirs, json.dumps(told).encode())
            os._exit(0)
        os.waitpid(child, 0)
        told.append(json.loads(os.read(ours, 100)))
        told.append(float(np.asarray(fn(x))[0]))
        print(json.dumps(told))
        """
    )
    assert told == [8.0] * 6


def test_copies_leave_most_of_the_budget_and_make_room(own: Any) -> None:
    with own.serving("--array-memory", "16"):
        told = own.run(
            """
            import json
            import jax.numpy as jnp
            import numpy as np
            import jitclient
            from jitclient.calls import copies
            from jitclient.session import process

            MIB = 1 << 18
            read = jitclient.jit(lambda x: x[0])
            large, small = jnp.full(5 * MIB, 2.0), jnp.full(3 * MIB, 3.0)
            told = []
            for x in (large, small):
                told.append([float(read(x)) for _ in range(4)])
                told.append(copies.copy_of(x, process.session()) is not None)
            mine = jitclient.device_put(np.ones(14 * MIB, np.float32))
            told.append(copies.copy_of(small, process.session()) is not None)
            told.append([float(mine[0]), *[float(read(small)) for _ in range(3)]])
            del mine
            small = jnp.full(3 * MIB, 4.0)
            wide = jitclient.jit(lambda n: jnp.full(14 * MIB, n))
            for _ in range(4):
                wide(2.0)
            told.append([float(read(small)) for _ in range(4)])
            told.append(copies.copy_of(small, process.session()) is not None)
            told.append(float(np.asarray(wide(2.0))[0]))  # by a plan
            print(json.dumps(told))
            """
        )
    assert told == [[2.0] * 4, False, [3.0] * 4, True, False, [1.0, 3.0, 3.0, 3.0], [4.0] * 4, True, 2.0]


def test_another_array_of_the_same_number_has_no_copy(daemon: str) -> None:
    fn, x, y = jitclient.jit(lambda x: x[0]), array(1), array(2)
    for _ in range(3):
        fn(x)
    copies._passed[id(y)] = copies._passed[id(x)]  # as where an error kept the entry of one that is gone
    assert [first(fn(y)) for _ in range(4)] == [2.0] * 4
    assert [first(fn(given)) for given in (x, y)] == [1.0, 2.0]


def test_a_child_does_not_use_what_its_parent_frees(daemon: str, run_script: Callable[..., Any]) -> None:
    told = run_script(
        """
        import json, os, warnings
        import jax.numpy as jnp
        import numpy as np
        import jitclient
        warnings.simplefilter("ignore")
        fn, x = jitclient.jit(lambda x: x[0]), jnp.full(40_000, 4.0)
        for _ in range(4):
            fn(x)
        ours, theirs = os.pipe()
        go, said = os.pipe()
        child = os.fork()
        if child == 0:
            os.read(go, 1)
            os.write(theirs, json.dumps([float(fn(x)) for _ in range(3)]).encode())
            os._exit(0)
        del x
        float(fn(jnp.full(40_000, 5.0)))
        jitclient.device_put(np.zeros(3))  # the drop goes with it, or went before
        os.write(said, b"x")
        os.waitpid(child, 0)
        print(os.read(ours, 100).decode())
        """
    )
    assert told == [4.0] * 3


def test_letting_go_meanwhile(daemon: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fn, x, y = jitclient.jit(lambda x, y: x[0] + y[0]), array(1), array(2)
    for _ in range(4):
        assert first(fn(x, y)) == 3.0
    run = Session.run

    def letting_go(*given: Any, **named: Any) -> Any:  # as another thread may
        copies.free_all()
        return run(*given, **named)

    monkeypatch.setattr(Session, "run", letting_go)
    assert [first(fn(x, y)) for _ in range(3)] == [3.0] * 3
