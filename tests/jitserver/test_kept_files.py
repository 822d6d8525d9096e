"""Kept trees on the disk, between one daemon and the next."""

import math
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jitclient.trees import tree as trees
from jitclient.wire.messages import Spec
from jitserver import kept_files
from jitserver.engine import arrays
from jitserver.kept import Kept, KeptTree

TREE = trees.encode(trees.structure_of(trees.flatten([0, 0, 0])[1]))


def filled(where: Path, *names: str) -> Kept:
    """Names that hold the same array twice and another one, written to the disk."""
    kept = Kept()
    for number, name in enumerate(names):
        x, y = jnp.full((3,), number, "float32"), jax.random.key(number)
        specs = (Spec((3,), "float32"), Spec((), "key<fry>"), Spec((3,), "float32"))
        kept.put(name, KeptTree(f"key {number}", specs, TREE, "[...]", [x, y, x], 60.0))
    kept_files.save(where, kept, math.inf)
    return kept


def back(where: Path) -> Kept:
    kept = Kept()
    kept.take_back(kept_files.taken_back(where))
    return kept


def test_all_comes_back_when_somebody_asks(tmp_path: Path) -> None:
    before = filled(tmp_path, "a", "b/../é").all()
    after = back(tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
    for name, tree in after.all().items():
        old = before[name]
        assert (tree.key, tree.specs, tree.tree, tree.label) == (old.key, old.specs, old.tree, old.label)
        assert (tree.ttl, tree.created, tree.last_used) == (old.ttl, old.created, old.last_used)
        assert after.load(name, tree)
        x, y, again = tree.arrays
        assert x is again
        assert np.asarray(x).tobytes() == np.asarray(old.arrays[0]).tobytes()
        assert jax.random.key_data(y).tolist() == jax.random.key_data(old.arrays[1]).tolist()
        assert arrays.on_device(x) is not x, "several have it: no program may take it"
    assert not list(tmp_path.iterdir())


def test_what_nobody_asked_for_stays_for_the_next(tmp_path: Path) -> None:
    filled(tmp_path, "a")
    second = back(tmp_path)
    kept_files.save(tmp_path, second, math.inf)
    third = back(tmp_path)
    assert third.load("a", third.all()["a"])


@pytest.mark.parametrize("how", ["forgotten", "replaced", "expired"])
def test_the_file_goes_with_the_tree(how: str, tmp_path: Path) -> None:
    filled(tmp_path, "a")
    now = [1e12]
    kept = Kept(lambda: now[0])
    kept.take_back(kept_files.taken_back(tmp_path))
    if how == "forgotten":
        assert kept.forget("a") is not None
    elif how == "replaced":
        kept.put("a", KeptTree("", (), b"", "", (), None))
    else:
        assert kept.expire(lambda tree: False) == ["a"]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("damage", ["the mark", "the record", "an array", "the end", "all"])
def test_what_is_damaged_is_lost_and_nothing_else(damage: str, tmp_path: Path) -> None:
    filled(tmp_path, "a", "b")
    path = next(path for path in tmp_path.iterdir() if path.name == kept_files._digest("a"))
    data = bytearray(path.read_bytes())
    if damage in ("the mark", "the record", "an array"):
        data[{"the mark": -1, "the record": -60, "an array": 1}[damage]] ^= 1
    else:
        del data[0 if damage == "all" else -5 :]
    path.write_bytes(data)
    kept = back(tmp_path)
    tree = kept.all().get("a")
    assert (tree is not None) == (damage == "an array")  # it is read when somebody asks
    assert tree is None or not kept.load("a", tree)
    assert list(kept.all()) == ["b"]
    assert kept.load("b", kept.all()["b"])
    assert not list(tmp_path.iterdir())


def test_what_was_not_finished_is_removed(tmp_path: Path) -> None:
    (tmp_path / "x.new").write_bytes(b"half")
    assert not back(tmp_path).all()
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_written_is_lost_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real: Any = kept_files.spilling.write

    def full(file: Any, array: Any, *rest: Any) -> Any:
        if float(array[0]) == 0 if array.shape else False:
            raise OSError(28, "No space left on device")
        return real(file, array, *rest)

    monkeypatch.setattr(kept_files.spilling, "write", full)
    filled(tmp_path, "a", "b")
    assert "what is kept as 'a' is lost: it cannot be written" in caplog.text
    assert list(back(tmp_path).all()) == ["b"]
    assert len(list(tmp_path.iterdir())) == 1


def test_what_there_is_no_time_for_is_lost(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    kept = filled(tmp_path, "a")
    kept.take_back([("b", KeptTree("key", (Spec((3,), "float32"),), b"", "", [jnp.zeros(3)], None))])
    kept_files.save(tmp_path, kept, time.monotonic() - 1)
    assert "what is kept as 'b' is lost: it cannot be written: there is no time left" in caplog.text
    assert list(back(tmp_path).all()) == ["a"]
