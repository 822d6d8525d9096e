"""Programs that are none, for the tests of what keeps them: fixtures that make them."""

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from jitclient.wire.introspection import EntryInfo
from jitserver.store.entry import Entry, KeyComponents, Stored


def _info(key: str, name: str = "f", seconds: float = 1.0, age: float = 0.0, **more: Any) -> EntryInfo:
    now = time.time()
    made = EntryInfo(
        key, "fk", name, "f.py:1", f"{name}()", f"{name}()", "", {"jax": "1"}, {"compile": seconds}, 0.0, 0, now, now, 0
    )
    made.last_used -= age + 10.0  # it is not so fresh that it must stay
    for field, value in more.items():
        setattr(made, field, value)
    return made


def _entry(key: str, name: str = "f", **more: Any) -> Entry:
    program = SimpleNamespace(run=f"executable of {key}", last_call=0.0, slowest=0.0)
    program.reload = lambda same: setattr(program, "run", same.run)
    return Entry(
        _info(key, name, **more), program, KeyComponents({}), lambda entry: setattr(entry.program, "run", None)
    )


def _stored(key: str, name: str = "f", **more: Any) -> Stored:
    return Stored(_info(key, name, **more), KeyComponents({"capture": key.encode()}), b"facts", b"request")


@pytest.fixture
def info() -> Callable[..., Any]:
    return _info


@pytest.fixture
def entry() -> Callable[..., Any]:
    return _entry


@pytest.fixture
def stored() -> Callable[..., Any]:
    return _stored
