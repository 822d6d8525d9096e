"""The lists of names that a daemon remembers, and their limit."""

from types import SimpleNamespace
from typing import Any

import pytest

from jitserver.programs import manifest_names
from jitserver.programs.keys import CallKey
from jitserver.programs.latest import Latest
from jitserver.programs.manifest_names import ManifestNames


def test_the_items_that_were_put_last_are_kept() -> None:
    latest = Latest[str, int](2)
    for key in "abac":
        latest.put(key, ord(key))
    assert latest.items() == [("a", ord("a")), ("c", ord("c"))]
    assert "b" not in latest
    assert latest.get("b") is None
    assert latest.setdefault("a", 0) == ord("a")
    latest.pop("a")
    latest.pop("a")
    assert latest.setdefault("b", 7) == 7
    assert latest.items() == [("c", ord("c")), ("b", 7)]


def test_lists_are_read_once_and_again_when_they_were_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_names, "_MOST", 2)
    read: list[str] = []

    def names_of(base: str) -> list[tuple[str, ...]]:
        read.append(base)
        return [("on the disk",)]

    cache: Any = SimpleNamespace(names_of=names_of, share=None)
    names = ManifestNames(cache)
    names.note("a", ("seen", "here"))
    for _ in range(2):
        assert names.lists_of("a") == [("seen", "here"), ("on the disk",)]
    assert read == ["a"]
    for base in "bc":
        names.lists_of(base)
    assert names.lists_of("a") == [("on the disk",)]
    assert read == ["a", "b", "c", "a"]


def test_what_another_process_has_added_is_found_at_the_next_miss() -> None:
    there: list[tuple[str, ...]] = []
    cache: Any = SimpleNamespace(names_of=lambda base: there, share=None)
    names, base = ManifestNames(cache), CallKey("a", "a", {})
    assert names.lists_of("a") == []
    assert not names.look_again(base)
    there.append(("pulled",))
    assert names.look_again(base)
    assert names.lists_of("a") == [("pulled",)]
    assert not names.look_again(base)
