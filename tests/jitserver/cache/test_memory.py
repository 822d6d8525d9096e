"""The memory tier: a mapping that forgets what was looked up longest ago."""

import pytest

from jitclient.wire.messages import EntryInfo
from jitserver.cache.entry import Entry
from jitserver.cache.makeup import Makeup
from jitserver.cache.memory import Memory


def entry(key: str, name: str = "f") -> Entry:
    info = EntryInfo(key, "fk", name, "", f"{name}()", f"{name}()", "", {}, {}, 0.0, 0, 0.0, 0.0, 0)
    return Entry(info, object(), Makeup({}, b""))


def test_it_is_a_mapping() -> None:
    memory = Memory()
    one = memory["a"] = entry("a")
    assert memory["a"] is one
    assert list(memory) == ["a"]
    assert len(memory) == 1
    assert memory.get("b") is None
    del memory["a"]
    assert "a" not in memory
    with pytest.raises(KeyError):
        memory["a"]


def test_it_forgets_what_was_looked_up_longest_ago() -> None:
    memory = Memory(most=2)
    memory["a"], memory["b"] = entry("a"), entry("b")
    assert memory.get("a") is not None
    memory["c"] = entry("c")
    assert list(memory) == ["a", "c"]


def test_matching_by_the_beginning_of_the_key_or_the_whole_name() -> None:
    memory = Memory()
    for key, name in (("ab", "f"), ("ac", "g"), ("bd", "abc")):
        memory[key] = entry(key, name)
    assert [found.key for found in memory.matching("a")] == ["ab", "ac"]
    assert [found.key for found in memory.matching("abc")] == ["bd"]
    assert [found.key for found in memory.matching("")] == ["ab", "ac", "bd"]
    assert memory.matching("x") == []
