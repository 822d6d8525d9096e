"""A mapping that keeps what was looked up last."""

import pytest

from jitserver.cache.recent import Recent


def test_it_is_a_mapping() -> None:
    recent: Recent[int] = Recent(2)
    recent["a"] = 1
    assert recent["a"] == 1
    assert list(recent) == ["a"]
    assert len(recent) == 1
    assert recent.get("b") is None
    del recent["a"]
    assert "a" not in recent
    with pytest.raises(KeyError):
        recent["a"]


def test_it_forgets_what_was_looked_up_longest_ago() -> None:
    recent: Recent[int] = Recent(2)
    recent["a"], recent["b"] = 1, 2
    assert recent.get("a") == 1
    recent["c"] = 3
    assert list(recent) == ["a", "c"]
