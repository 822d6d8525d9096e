"""Objects that a trace made, written by a daemon and made again here."""

import collections
import functools
import re
import types
import weakref
from typing import Any

import numpy as np
import pytest
from jax import tree_util

from jitclient.capture.dump import capture
from jitclient.capture.load import load
from jitclient.capture.results.reader import RebuiltObjects
from jitclient.capture.results.writer import MAX_BYTES, TraceObjects
from jitclient.errors import CaptureError

NOTHING = load(capture(lambda x: x).payload)


def again(value: Any) -> Any:
    made = TraceObjects(NOTHING)
    made.add(value)
    return RebuiltObjects(capture(lambda x: x), made.to_bytes()).object_at(-1)


@pytest.mark.parametrize(
    "value",
    [
        (None, True, 1, 2**70, 1.5, -0.0, 1 + 2j, "text", b"bytes", ..., NotImplemented, range(3), slice(1, None, 2)),
        [1, [2], {"a": {3, 4}}, frozenset({5})],
        collections.OrderedDict(b=1, a=2),
        collections.defaultdict(list, {1: [2]}),
        types.MappingProxyType({"a": 1}),
        (np.float32, np.dtype("int4" if hasattr(np, "int4") else "int8"), np.float32(1.5), type(None)),
        (
            tree_util.GetAttrKey("a"),
            tree_util.DictKey(("b", 1)),
            tree_util.SequenceKey(2),
            tree_util.FlattenedIndexKey(3),
        ),
        tuple(value for value in vars(types).values() if isinstance(value, type)),
    ],
    ids=repr,
)
def test_comes_back_as_it_was(value: Any) -> None:
    back = again(value)
    assert back == value
    assert type(back) is type(value)
    assert repr(back) == repr(value)


def test_what_is_one_object_is_one_object() -> None:
    inner: list[Any] = [1]
    one, other = again((inner, {"inner": inner}))
    assert one is other["inner"]


def test_cycles_come_back() -> None:
    ring: list[Any] = []
    ring.append(ring)
    back = again(ring)
    assert back[0] is back


def test_what_its_arguments_lead_back_to_is_made_once() -> None:
    held: list[Any] = []
    partial = functools.partial(max, held)
    held.append(partial)
    back = again(partial)
    assert back.args[0][0] is back


def test_what_has_no_hash_of_its_own_can_be_a_key() -> None:
    keys = (int, np.dtype("float32"), re.RegexFlag.A, (1, frozenset({"a"})), len, np.float32)
    assert again(dict.fromkeys(keys, 1)) == dict.fromkeys(keys, 1)


def test_an_array_keeps_its_order_and_whether_it_can_be_written_to() -> None:
    array = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    array.flags.writeable = False
    back = again(array)
    assert (back.flags.f_contiguous, back.flags.writeable) == (True, False)
    np.testing.assert_array_equal(back, array)


def test_a_proxy_shows_the_kind_of_dict_that_it_showed() -> None:
    back = again(types.MappingProxyType(collections.defaultdict(int, a=1)))
    assert back["missing"] == 0


def test_arrays_and_references_come_back() -> None:
    array = np.arange(6, dtype=np.int16).reshape(2, 3)
    back, reference = again((array, weakref.ref(array)))
    np.testing.assert_array_equal(back, array)
    assert reference() is back


def test_what_is_data_or_the_daemons_own_is_refused() -> None:
    for value in (np.zeros(MAX_BYTES + 1, np.uint8), "x" * (MAX_BYTES + 1), lambda x: x, type("Own", (), {})):
        with pytest.raises(CaptureError):
            again(value)
