"""Replaced code and defaults are counted, and noticed by a watch, whatever another thread does meanwhile."""

from typing import Any

from jitclient.capture.graph.watch import Watch
from jitclient.core import replaced_code


def made(value: int = 1) -> int:
    return value


def other(value: int = 1) -> int:
    return value + 1


def test_code_and_defaults_are_counted(monkeypatch: Any) -> None:
    replaced_code.start_counting()
    before = replaced_code.count[0]
    monkeypatch.setattr(made, "__code__", other.__code__)
    monkeypatch.setattr(made, "__defaults__", (2,))
    monkeypatch.setattr(made, "__defaults__", None)
    assert replaced_code.count[0] == before + 3
    made.an_attribute = 1  # type: ignore[attr-defined]
    assert replaced_code.count[0] == before + 3


def test_what_is_counted_before_it_is_replaced_is_noticed(monkeypatch: Any) -> None:
    watch = Watch()
    watch.function(made)
    watch.start()
    assert watch.unchanged()
    replaced_code.count[0] += 1  # another thread is about to replace the code
    assert watch.unchanged()
    with monkeypatch.context() as patched:
        was, replaced_code.count[0] = replaced_code.count[0], -1
        patched.setattr(made, "__code__", other.__code__)
        replaced_code.count[0] = was
        assert not watch.unchanged()
    assert watch.unchanged()
