"""Plain values and tree structures as bytes."""

import collections
import dataclasses
import decimal
import enum
import math
import socket
from typing import Any, NamedTuple

import numpy as np
import pytest

from jitclient.capture.codec import values
from jitclient.capture.codec.plain import Reduced, Reference
from jitclient.errors import CaptureError, ProtocolError
from jitclient.jaxside import tree


def no_ref(index: int) -> Any:
    raise AssertionError(index)


@pytest.mark.slow
def test_plain_values_come_back_as_they_were() -> None:
    import hypothesis.strategies as st  # where it is loaded, each collection reads all of our modules for constants
    from hypothesis import HealthCheck, given, settings

    simple = (
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False)
        | st.text()
        | st.binary()
        | st.complex_numbers(allow_nan=False)
    )
    plain = st.recursive(
        simple,
        lambda inner: (
            st.lists(inner)
            | st.tuples(inner, inner)
            | st.frozensets(simple)
            | st.dictionaries(st.text() | st.integers(), inner)
        ),
    )

    # A busy machine is no failure.
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(plain)
    def check(value: Any) -> None:
        back = values.decode(values.encode(value), no_ref)
        assert back == value
        assert repr(back) == repr(value) or isinstance(value, (frozenset, dict, list, tuple))
        assert type(back) is type(value)
        assert values.is_self_contained(value) or "{" in repr(value), "sets have an order that other processes lack"

    check()


@pytest.mark.parametrize(
    ("one", "other"), [(1, True), (1, 1.0), (0.0, -0.0), ("a", b"a"), ((1,), [1]), (2**70, str(2**70))]
)
def test_what_python_calls_equal_or_alike_has_bytes_of_its_own(one: Any, other: Any) -> None:
    assert values.encode(one) != values.encode(other)


def test_a_set_has_the_same_bytes_whatever_its_order() -> None:
    letters = "abcdefgh"
    forward, backward = set(), set()
    for letter in letters:
        forward.add(letter)
    for letter in reversed(letters):
        backward.add(letter)
    assert values.encode(forward) == values.encode(backward)


def test_nan_travels() -> None:
    assert math.isnan(values.decode(values.encode(math.nan), no_ref))


def test_things_of_installed_modules_travel_by_name() -> None:
    assert values.decode(values.encode(collections.OrderedDict), no_ref) is collections.OrderedDict
    assert values.decode(values.encode(math.sin), no_ref) is math.sin


class Colour(enum.Enum):
    RED = "r"


def test_members_of_enums_travel_by_name() -> None:
    message = values.encode((Colour.RED, socket.AF_INET), lambda thing: 0 if thing is Colour else None)
    assert values.decode(message, [Colour].__getitem__) == (Colour.RED, socket.AF_INET)


def test_constants_of_installed_modules_travel_by_name() -> None:
    assert values.decode(values.encode(dataclasses.MISSING), no_ref) is dataclasses.MISSING


@pytest.mark.parametrize("name", ["float32", "int64", "bool", "bfloat16", "float8_e4m3fn", "int4"])
def test_dtypes_travel(name: str) -> None:
    import ml_dtypes  # noqa: F401

    dtype = np.dtype(name)
    assert values.decode(values.encode(dtype), no_ref) == dtype


def test_things_of_the_capture_travel_by_position() -> None:
    mine = object()
    message = values.encode((1, mine), lambda thing: 3 if thing is mine else None)
    assert values.decode(message, {3: mine}.__getitem__) == (1, mine)


def test_what_has_no_form_is_refused() -> None:
    with pytest.raises(CaptureError, match="no form"):
        values.encode(decimal.Decimal(1))


HOSTILE = [
    b"",
    b"nonsense",
    b"\x80\x05cos\nsystem\n.",
    b"\x80\x05cbuiltins\neval\n(S'1/0'\ntR.",
    b"\x80\x05cbuiltins\ncomplex\n.",
    b"\x80\x05(lp0\nVnamed\np1\nQ.",
    b"\x80\x05" + b"]" * 100_000 + b"a" * 99_999 + b".",
    b"\x80\x05" + b"NN" * 100_000 + b")\x87" * 99_999 + b".",
    b"\x80\x05}N" + b"\x85" * 1_000_000 + b"Ns.",
    b"\x80\x05(N" + b"\x85" * 1_000_000 + b"\x91.",
    b"\x80\x05]N" + b"\x85" * 1_000_000 + b"aQ.",
    b"\x80\x05Nr\xff\xff\xff\x0f.",
    values.to_bytes(frozenset({1})),
    *map(
        values.to_bytes,
        [
            Reduced("attribute", (Reference(0), "__class__")),
            Reduced("call", (Reference(0), ())),
            Reduced("dict", (1, 2)),
            Reduced("dtype", ("no such dtype",)),
            Reduced("installed", ("os", "system")),
            Reduced("member", (Reduced("named", ("os", "environ")), "HOME")),
            Reduced("named", ("os", "no_such_thing")),
            Reduced("named", ("os", 5)),
            Reduced("set", ([],)),
        ],
    ),
]


@pytest.mark.parametrize("data", HOSTILE, ids=range(len(HOSTILE)))
def test_bytes_that_are_none_of_ours_are_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        values.decode(data, lambda _: values)
    with pytest.raises(ProtocolError):
        tree.decode(data, lambda _: values)


def test_what_bytes_name_is_not_called() -> None:
    called: list[Any] = []
    persistent = values.to_bytes(Reference(0))[:-1]
    calls = persistent + b")R."  # the object 0, an empty tuple, REDUCE
    with pytest.raises(ProtocolError):
        values.decode(calls, lambda _: called.append)
    assert called == []


def test_reading_imports_no_package_that_is_not_in_use() -> None:
    import sys

    assert "this" not in sys.modules
    with pytest.raises(ProtocolError, match="not loaded"):
        values.decode(values.to_bytes(Reduced("named", ("this", "s"))), no_ref)
    assert "this" not in sys.modules


class Point(NamedTuple):
    x: Any
    y: Any


TREES = [
    1,
    None,
    (),
    [],
    {},
    (1, None, [2, {"b": 3, "a": (4,)}]),
    {2: 1, 1: 2},
    collections.OrderedDict(b=1, a=2),
    collections.defaultdict(list, b=1, a=2),
    Point(1, {"k": Point(2, 3)}),
]


@pytest.mark.parametrize("value", TREES, ids=repr)
def test_trees_come_back_with_and_without_jax(value: Any) -> None:
    leaves: list[Any] = []
    structure = tree._flatten(value, leaves)
    classes = [Point]

    def ref(thing: Any) -> int | None:
        return 0 if thing is Point else None

    message = tree.encode(structure, ref)
    back = tree.decode(message, classes.__getitem__)
    assert back == structure
    rebuilt = tree._build(back, iter(leaves))
    assert rebuilt == value
    assert type(rebuilt) is type(value)


@pytest.mark.parametrize("value", TREES, ids=repr)
def test_structures_are_jaxs_own(value: Any) -> None:
    import jax

    leaves: list[Any] = []
    structure = tree._flatten(value, leaves)
    jax_leaves, treedef = jax.tree_util.tree_flatten(value)
    assert leaves == jax_leaves
    assert tree.structure_of(treedef) == structure
    assert tree.treedef_of(structure) == treedef


def test_paths_read_as_the_user_writes_them() -> None:
    leaves: list[Any] = []
    structure = tree._flatten({"p": [1, Point(2, (3,))]}, leaves)
    assert list(tree.paths(structure, "params")) == ["params['p'][0]", "params['p'][1].x", "params['p'][1].y[0]"]


def test_only_what_cannot_be_named_needs_the_capture() -> None:
    leaves: list[Any] = []
    structure = tree._flatten((Point(1, 2), {"a": None}, collections.defaultdict(int, a=1)), leaves)
    assert list(tree.objects_in(structure)) == [Point]
