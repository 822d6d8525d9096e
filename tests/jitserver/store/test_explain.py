"""Two programs differ if and only if a row of their keys does, and then something is said of it."""

import pytest

from jitclient.wire.explaining import Difference, KeyPart, encode_parts
from jitserver.store.entry import KeyComponents
from jitserver.store.explain import differences


def components(rows: dict[str, bytes], *parts: tuple[str, str, str]) -> KeyComponents:
    told = [KeyPart(row, label, text.encode(), text) for row, label, text in parts]
    return KeyComponents(rows, encode_parts(told))


def said(old: KeyComponents, new: KeyComponents) -> list[str]:
    return [str(difference) for difference in differences(old, new)]


def test_equal_rows_have_no_differences_whatever_their_parts_are_called() -> None:
    assert said(components({"capture": b"1"}, ("capture", "global a.K", "1")), components({"capture": b"1"})) == []


def test_a_row_without_a_differing_part_is_named_itself() -> None:
    old, new = (components({"capture": key, "tree": b"t"}, ("capture", "global K", "1")) for key in (b"1", b"2"))
    assert said(old, new) == ["capture: changed"]
    assert said(components({}), components({"later": b"1"})) == ["later: changed"]


def test_only_parts_of_rows_that_differ_are_told() -> None:
    old = components(
        {"leaves": b"1", "settings": b"s"}, ("leaves", "argument x", "a"), ("settings", "jax_enable_x64", "0")
    )
    new = components(
        {"leaves": b"2", "settings": b"s"}, ("leaves", "argument x", "b"), ("settings", "jax_enable_x64", "1")
    )
    assert said(old, new) == ["argument x: a -> b"]


def test_what_came_or_went_with_its_holder_goes_without_saying() -> None:
    old = components({"capture": b"1"}, ("capture", "global K", "[1]"), ("capture", "closure a[0] of f", "1"))
    new = components(
        {"capture": b"2"},
        ("capture", "global K", "[1, 2]"),
        ("capture", "global K[1]", "2"),
        ("capture", "global K2", "3"),
        ("capture", "class A: attribute __doc__", "d"),
        ("capture", "class A: attribute k", "d"),
    )
    assert said(old, new) == [
        "global K: [1] -> [1, 2]",
        "closure a[0] of f: gone, 1",
        "global K2: new, 3",
        "class A: attribute k: new, d",
        "class A: attribute __doc__: new, d",
    ]


@pytest.mark.parametrize(
    ("difference", "text"),
    [
        (Difference("helper um.scale: code", "", "", "um.py:12"), "helper um.scale: code changed (um.py:12)"),
        (Difference("code of step", "", "", "a.py:3"), "code of step: changed (a.py:3)"),
        (Difference("helper um.scale: code", None, "", "um.py:12"), "helper um.scale: new (um.py:12)"),
        (Difference("helper um.scale: code", "", None), "helper um.scale: gone"),
        (Difference("global K", "Box(…)", "Box(…)"), "global K: changed"),
        (Difference("numpy", "2.1", "2.2"), "numpy: 2.1 -> 2.2"),
    ],
)
def test_differences_read_well(difference: Difference, text: str) -> None:
    assert str(difference) == text
