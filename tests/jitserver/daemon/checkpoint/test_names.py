"""Named arrays in checkpoints, and arrays that sessions share with them."""

import threading
import time
from collections.abc import Callable
from typing import Any
from unittest.mock import ANY

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jitserver.daemon import array_usage
from jitserver.daemon.arrays.named_arrays import NamedTree
from jitserver.daemon.checkpoint.store import ArrayStore
from jitserver.daemon.sessions.session import DaemonSession
from jitserver.programs.devices import device_arrays
from jitserver.programs.devices.memories import LEAST_BYTES, default
from jitserver.programs.exceptions import Failed

from .conftest import Daemon


def fill(daemon: Daemon, *names: str) -> None:
    """A name with the same array twice, and another array."""
    for number, name in enumerate(names):
        x, y = jnp.full((3,), number, "float32"), jax.random.key(number)
        daemon.keep(name, [x, y, x], ttl=60.0)


def test_trees_are_restored_when_requested(daemon: Daemon) -> None:
    fill(daemon, "a", "b/../é")
    before = daemon.kept.all()
    following = daemon.restart()
    assert len(following.files("arrays")) == 4
    for name, tree in following.kept.all().items():
        old = before[name]
        assert (tree.key, tree.specs, tree.tree, tree.label) == (old.key, old.specs, old.tree, old.label)
        assert (tree.ttl, tree.created, tree.last_used) == (old.ttl, old.created, old.last_used)
        assert tree.on_disk is not None
        assert tree.on_disk.missing_bytes() == {default(): 2 * LEAST_BYTES}
        x, y, again = following.leaves(name)
        assert x is again
        assert np.asarray(x).tobytes() == np.asarray(old.arrays[0]).tobytes()
        assert jax.random.key_data(y).tolist() == jax.random.key_data(old.arrays[1]).tolist()
        assert device_arrays.on_device(x) is not x, "several have it: no program may take it"
    assert following.is_empty()


def test_trees_that_were_not_requested_stay_for_the_next_daemon(daemon: Daemon) -> None:
    fill(daemon, "a")
    assert daemon.restart().restart().leaves("a")


@pytest.mark.parametrize("how", ["forgotten", "replaced", "expired"])
def test_the_files_are_removed_with_the_tree(how: str, daemon: Daemon) -> None:
    fill(daemon, "a")
    following = daemon.restart()
    kept, now = following.kept, [1e12]
    kept._clock = lambda: now[0]
    if how == "forgotten":
        assert kept.forget("a") is not None
    elif how == "replaced":
        kept.put("a", NamedTree("", (), b"", "", (), None))
    else:
        assert kept.expire(lambda tree: False) == ["a"]
    assert following.is_empty()


@pytest.mark.parametrize("damage", ["the manifest", "its end", "an array", "all"])
@pytest.mark.parametrize("name", ["a", "../ä/%\0" * 5, "long" * 100], ids=["short", "odd", "long"])
def test_only_the_damaged_tree_is_lost(damage: str, name: str, daemon: Daemon) -> None:
    fill(daemon, name)
    array = daemon.restart().files("arrays")[0]
    [path] = daemon.files("manifests")
    daemon = Daemon(daemon.root)
    fill(daemon, "b")
    daemon.leave()
    if damage == "an array":
        array.write_bytes(b"x" + array.read_bytes()[1:])
    else:
        data = path.read_bytes()
        path.write_bytes({"the manifest": bytes([data[0] ^ 1]) + data[1:], "its end": data[:-5], "all": b""}[damage])
    following = Daemon(daemon.root)
    tree = following.kept.all().get(name)
    assert tree is None or not following.kept.load(name, tree)  # its arrays are read now
    is_said = damage == "an array" or len(name) < 100
    assert following.lost() == ({name: ANY} if is_said else {})
    assert following.names() == ["b"]
    assert following.leaves("b")
    following = following.restart()
    assert following.leaves("b")
    assert following.lost() == {}
    assert following.is_empty()


def test_only_the_tree_that_cannot_be_written_is_lost(
    daemon: Daemon, full_after: Callable[[int], None], caplog: pytest.LogCaptureFixture
) -> None:
    x, y, z = jnp.zeros(10_000), jnp.arange(10), jnp.arange(20)
    daemon.keep("a", [y, x])
    daemon.keep("b", [z])
    full_after(20_000)
    daemon.leave()
    assert "the arrays kept as 'a' are lost: the daemon restarted, and could not write" in caplog.text
    assert [path.stat().st_size for path in daemon.files("arrays")] == [80], "nothing of what is lost is left"
    following = Daemon(daemon.root).restart()
    assert following.names() == ["b"]
    assert following.checkpoint.nbytes() == 80
    assert "could not write this array to the disk" in following.lost()["a"], "until it is replaced or forgotten"
    assert following.restart().lost() == {}


def test_a_tree_is_lost_if_there_is_no_time_to_write_it(daemon: Daemon, caplog: pytest.LogCaptureFixture) -> None:
    fill(daemon, "a")
    following = daemon.restart()
    fill(following, "b")
    following = following.restart(time.monotonic() - 1)
    assert "the arrays kept as 'b' are lost: the daemon restarted, and had no time left" in caplog.text
    assert following.names() == ["a"]
    following.kept.put("b", NamedTree("", (), b"", "", (), None))
    assert following.names() == ["a", "b"]
    assert following.lost() == {}


def test_a_lost_tree_expires_as_it_would_have(daemon: Daemon) -> None:
    fill(daemon, "a")
    following = daemon.restart(time.monotonic() - 1)
    assert len(following.kept) == 0
    assert following.kept.expire(lambda tree: False) == []
    following.kept._clock = lambda: 1e12
    assert following.kept.expire(lambda tree: False) == ["a"]
    assert following.is_empty()


def test_a_tree_that_is_requested_during_a_save_is_not_removed(daemon: Daemon) -> None:
    fill(daemon, "a")
    between = daemon.restart()
    asked = between.kept.all()["a"]
    between.leave()
    assert not between.kept.load("a", asked)
    assert Daemon(daemon.root).leaves("a")


# ---- arrays shared with sessions


class Shared:
    """A daemon with a named tree that shares arrays with a session, and the daemons that follow it."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        x, y = jnp.arange(1000.0), jnp.zeros(3)
        daemon.keep("data", [x, y])
        self.session = daemon.begin({1: x, 2: jnp.ones(2)})

    def restart(self) -> None:
        self.daemon = self.daemon.restart()

    def back(self) -> DaemonSession:
        found = self.daemon.back(self.session)
        assert np.array_equal(found.array(2), np.ones(2))
        return found


@pytest.fixture
def shared(daemon: Daemon) -> Shared:
    return Shared(daemon)


@pytest.mark.parametrize("restarts", [1, 2, 3])
@pytest.mark.parametrize("first", ["the session", "the name"])
def test_a_shared_array_is_one_file_and_restored_as_one_array(shared: Shared, restarts: int, first: str) -> None:
    for _ in range(restarts):
        shared.restart()
    assert sorted(path.stat().st_size for path in shared.daemon.files("arrays")) == [8, 12, 4000]
    if first == "the session":
        back = shared.back()
        assert sorted(path.stat().st_size for path in shared.daemon.files("arrays")) == [12, 4000]
        [x, _] = shared.daemon.leaves("data")
    else:
        [x, _] = shared.daemon.leaves("data")
        assert sorted(path.stat().st_size for path in shared.daemon.files("arrays")) == [8, 4000]
        back = shared.back()
    assert back.array(1) is x
    assert device_arrays.on_device(x) is not x, "no program may take it"
    assert shared.daemon.is_empty()


@pytest.mark.parametrize("first", ["the session", "the name"])
def test_a_shared_array_stays_one_file_if_one_holder_has_loaded_it(shared: Shared, first: str) -> None:
    shared.restart()
    if first == "the session":
        shared.back()
    else:
        shared.daemon.leaves("data")
    shared.restart()
    assert sorted(path.stat().st_size for path in shared.daemon.files("arrays")) == [8, 12, 4000]
    assert shared.back().array(1) is shared.daemon.leaves("data")[0]


def test_an_array_that_a_session_dropped_stays_under_its_name(shared: Shared) -> None:
    shared.restart()
    tree = shared.daemon.kept.all()["data"]
    assert tree.on_disk is not None
    assert tree.on_disk.missing_bytes() == {default(): 2 * LEAST_BYTES}
    back = shared.back()
    assert tree.on_disk.missing_bytes() == {default(): LEAST_BYTES}
    back.forget([1])
    assert tree.on_disk.missing_bytes() == {default(): 2 * LEAST_BYTES}
    assert np.array_equal(shared.daemon.leaves("data")[0], np.arange(1000.0))


def test_an_array_of_a_removed_name_stays_in_its_session(shared: Shared) -> None:
    shared.restart()
    assert shared.daemon.kept.forget("data") is not None
    shared.restart()  # before its client reconnected
    assert shared.daemon.kept.all() == {}
    assert np.array_equal(shared.back().array(1), np.arange(1000.0))
    assert shared.daemon.is_empty()


def test_another_tree_of_the_same_name_is_not_confused_with_it(shared: Shared) -> None:
    shared.restart()
    shared.daemon.keep("data", [jnp.zeros(3)])
    shared.restart()
    assert np.array_equal(shared.back().array(1), np.arange(1000.0))
    assert np.array_equal(shared.daemon.leaves("data")[0], np.zeros(3))


def test_an_array_that_is_lost_to_its_name_stays_in_its_session(
    shared: Shared, full_after: Callable[[int], None], caplog: pytest.LogCaptureFixture
) -> None:
    shared.daemon.keep("data", [*shared.daemon.leaves("data"), jnp.zeros(5000)])
    full_after(20_000)
    shared.restart()
    assert "the arrays kept as 'data' are lost" in caplog.text
    assert sorted(path.stat().st_size for path in shared.daemon.files("arrays")) == [8, 4000]
    assert np.array_equal(shared.back().array(1), np.arange(1000.0))


def test_a_damaged_shared_array_is_lost_to_both(shared: Shared) -> None:
    shared.restart()
    path = max(shared.daemon.files("arrays"), key=lambda path: path.stat().st_size)
    path.write_bytes(b"x" * 100 + path.read_bytes()[100:])
    with pytest.raises(Failed) as failed:
        shared.back().array(1)
    assert "could not restore this array" in failed.value.failure.text
    tree = shared.daemon.kept.all()["data"]
    assert not shared.daemon.kept.load("data", tree)
    assert tree.arrays == (), "others may be counting them"
    assert "wrong checksum" in shared.daemon.lost()["data"]
    assert shared.daemon.is_empty()


def test_a_session_that_is_not_yet_resumed_uses_its_shared_trees(shared: Shared) -> None:
    def is_held(name: str) -> bool:
        return array_usage.is_held(shared.daemon.kept.all()[name], shared.daemon.sessions.all())

    shared.daemon.keep("other", [jnp.zeros(7)])
    shared.restart()
    assert (is_held("data"), is_held("other")) == (True, False)
    shared.daemon.leaves("data")
    shared.daemon.leaves("other")
    assert (is_held("data"), is_held("other")) == (True, False), "the name has it in memory"
    shared.restart()
    back = shared.back()
    assert (is_held("data"), is_held("other")) == (True, False), "the session has it in memory"
    back.forget([1])
    assert not is_held("data")
    shared.restart()
    shared.daemon.sessions.end_all()
    assert not is_held("data")


def test_an_array_that_gets_another_reference_stays_when_a_session_ends_meanwhile(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = jnp.arange(10)
    daemon.keep("data", [x])
    away, held = daemon.begin({1: x}), daemon.begin({1: x, 2: jnp.zeros(3)})
    following = daemon.restart()
    following.kept.forget("data")
    following.back(held)
    ending = threading.Thread(target=lambda: following.sessions.end(following.sessions.by_token[away.token]))
    real: Any = ArrayStore.write

    def write(*arguments: Any) -> Any:
        ending.start()
        ending.join(0.2)  # it must wait; otherwise this is enough time
        return real(*arguments)

    monkeypatch.setattr(ArrayStore, "write", write)
    following.leave()
    ending.join()
    last = Daemon(daemon.root)
    assert last.resume(away.token) is None
    assert last.back(held).array(1).tolist() == list(range(10))
    assert last.is_empty()
