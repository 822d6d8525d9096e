"""The work that a look-up and a miss take: one capture before the daemon is asked, one more after the own trace."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import jitclient
from jitclient import eqx as jitclient_eqx
from jitclient import nnx as jitclient_nnx
from jitclient.calls import general_path

X = np.arange(3, dtype=np.float32)
NAMES = {"a", "b", "c", "d"}


class Config:
    def __init__(self, gain: int) -> None:
        self.gain = gain

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and other.gain == self.gain

    def __hash__(self) -> int:
        return hash(self.gain)


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one with each capture of a jitted function."""
    taken: list[int] = []
    capture = general_path.capture
    monkeypatch.setattr(general_path, "capture", lambda *given, **kinds: taken.append(1) or capture(*given, **kinds))
    return taken


def plain(x: Any) -> Any:
    return x * 3 + 4


def static(x: Any, config: Config) -> Any:
    return x * config.gain


def in_order(x: Any) -> Any:
    for number, name in enumerate(NAMES):
        x = x + number * ord(name)
    return x


def of_equinox() -> tuple[Any, ...]:
    equinox = pytest.importorskip("equinox")
    model = equinox.nn.Linear(3, 2, key=jax.random.key(0))
    return lambda: jitclient_eqx.filter_jit(lambda model, x: model(x)), model, X


def of_nnx() -> tuple[Any, ...]:
    nnx = pytest.importorskip("flax.nnx")
    model = nnx.Linear(3, 2, rngs=nnx.Rngs(0))
    return lambda: jitclient_nnx.jit(lambda model, x: model(x)), model, X


KINDS: dict[str, Callable[[], tuple[Any, ...]]] = {
    "plain": lambda: (lambda: jitclient.jit(plain), X),
    "static object": lambda: (lambda: jitclient.jit(static, static_argnums=1), X, Config(2)),
    "equinox": of_equinox,
    "nnx": of_nnx,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("daemon")
def test_a_miss_takes_two_captures_and_a_hit_one(kind: str, captures: list[int]) -> None:
    make, *args = KINDS[kind]()
    make()(*args)
    assert len(captures) == 2
    make()(*args)
    assert len(captures) == 3


# Not `daemon`, because the client traces this function alone.
@pytest.mark.usefixtures("shared_daemon")
def test_the_order_of_sets_takes_no_capture_of_its_own(captures: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    jitclient.jit(in_order)(X)
    assert len(captures) == 2
    jitclient.jit(in_order)(X)
    assert len(captures) == 3
