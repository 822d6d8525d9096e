"""Pages of entries of limited size."""

import pytest

from jitclient.wire.introspection import EntryInfo
from jitserver.daemon import introspection


def info(number: int, signature: str = "f()") -> EntryInfo:
    return EntryInfo(
        key=f"{number:04}",
        function_key="",
        name="f",
        where="",
        label="f()",
        signature=signature,
        options="",
        context={},
        seconds={},
        saved=0,
        hits=0,
        created=0,
        last_used=0,
        code_bytes=0,
    )


def test_a_page_has_the_entries_after_a_key_in_order() -> None:
    found = [info(3), info(1), info(2)]
    assert [entry.key for entry in introspection.listed(found, "").found] == ["0001", "0002", "0003"]
    assert [entry.key for entry in introspection.listed(found, "0001").found] == ["0002", "0003"]
    assert introspection.listed(found, "0003").found == []
    assert not introspection.listed(found, "").more


def test_a_page_fits_into_a_message_but_has_one_entry_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(introspection, "_MAX_BYTES", 2000)
    found = [info(number) for number in range(10)]
    first = introspection.listed(found, "")
    assert first.more
    assert 1 <= len(first.found) < 10
    second = introspection.listed(found, first.found[-1].key)
    assert second.found[0].key > first.found[-1].key
    large = introspection.listed([info(1, "x" * 5000), info(2)], "")
    assert ([entry.key for entry in large.found], large.more) == (["0001"], True)
