"""Payloads that are not captures, and what a load leaves behind."""

import fnmatch
import gc
import json
import random
import sys
import typing
import weakref

import numpy as np
import pytest

from jitclient.capture.codec.pickler import to_bytes
from jitclient.capture.codec.plain import Reduced, Reference
from jitclient.capture.codec.unpickler import from_bytes
from jitclient.capture.dump import capture
from jitclient.capture.load import load
from jitclient.capture.steps.builder import Builder
from jitclient.capture.steps.format import FORMAT
from jitclient.errors import CaptureError

SOURCE = """
import dataclasses
K = [1, {"a": (2, 3)}]
@dataclasses.dataclass
class A:
    k: int = 1
a = A(3)
def helper(x):
    return x + a.k
def fn(x):
    return helper(x) + K[1]["a"][0]
"""


def program(*steps, fn=None, extras=(), written_by=FORMAT):
    return b"".join(map(to_bytes, [(written_by, "", False), list(steps), (fn, list(extras))]))


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"nonsense",
        to_bytes(None),
        to_bytes((FORMAT, "", False)),
        program(written_by=FORMAT + 1),
        program(Reduced("no such step", ([],))),
        program(Reduced("list", ([],)), Reduced("+extend", (7, []))),
        program(fn=Reference(3)),
        program(Reduced("function", ([], Reference(0), Reference(0), "f", [], False)), fn=Reference(0)),
        program(fn=Reduced("installed", ("no_such_module_at_all", "x"))),
        program(fn=Reduced("installed", ("math", "no_such_name"))),
        program(fn=Reduced("no such value", ())),
        b"\x80\x05cos\nsystem\n.",
        to_bytes((FORMAT, "", False)) + b"\x80\x05cos\nsystem\n.",
    ],
)
def test_malformed_payloads_are_refused(payload):
    with pytest.raises(CaptureError):
        load(payload)


def test_damaged_payloads_raise_nothing_else(write):
    made = capture(write(um_damaged=SOURCE).fn)
    rng = random.Random(0)
    for _ in range(300):
        damaged = bytearray(made.payload)
        if rng.random() < 0.5:
            del damaged[rng.randrange(len(damaged)) :]
        else:
            where = made.payload.index(b"helper") if rng.random() < 0.2 else rng.randrange(40)
            damaged[where] = rng.randrange(256)
        try:
            load(bytes(damaged))
        except CaptureError:
            pass


def test_damaged_locations_are_refused(write):
    made = capture(write(um_damaged=SOURCE).fn)
    with pytest.raises(CaptureError):
        load(made.payload, b"nonsense")


def test_a_load_is_private(write):
    module = write(um_private=SOURCE)
    made = capture(module.fn)
    first, second = load(made.payload), load(made.payload)
    assert first.fn is not second.fn
    assert first.fn(1) == second.fn(1) == module.fn(1)
    assert not any(getattr(m, "helper", None) is first.fn.__globals__["helper"] for m in list(sys.modules.values()))
    assert first.fn.__globals__ is not second.fn.__globals__


def test_what_runs_a_payload_goes_at_once_and_leaves_that_to_no_garbage_collection(write):
    made = capture(write(um_gone=SOURCE).fn)
    gc.collect()
    gc.disable()
    try:
        builder = Builder(made.payload, [])
        fn, _ = builder.run()
        gone = weakref.ref(builder)
        del builder
        assert gone() is None
        assert fn(1) == 6
    finally:
        gc.enable()


def test_an_import_in_a_body_runs_privately(write, monkeypatch):
    write(um_inner="K = 4\n")
    write(um_runs="import um_inner\nSEEN = [um_inner.K]\ndef add(x):\n    SEEN.append(x)\n    return len(SEEN)\n")
    module = write(um_body="def fn(x):\n    from um_runs import add\n    return add(x)\n")
    made = capture(module.fn)
    for name in ("um_runs", "um_inner"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if "pytest" not in p])
    loaded = load(made.payload)
    assert [loaded.fn(1), loaded.fn(1)] == [2, 3]
    assert load(made.payload).fn(1) == 2
    assert "um_runs" not in sys.modules
    assert "um_inner" not in sys.modules


def test_rebound_name_of_a_module_imported_in_a_body(write):
    helper = write(um_rebound="K = 4\ndef scale(x):\n    return x * K\n")
    module = write(um_body="def fn(x):\n    import um_rebound\n    return um_rebound.scale(x)\n")
    as_written = capture(module.fn)
    helper.K = 5
    rebound = capture(module.fn)
    assert rebound.key != as_written.key
    assert load(rebound.payload).fn(2) == 10
    helper.K = 4
    assert capture(module.fn).key == as_written.key


def test_missing_module_fails_as_it_does_locally(write):
    module = write(
        um_missing="""
        def fn(x):
            try:
                import um_not_there
            except ModuleNotFoundError as error:
                return error.name
        """
    )
    assert load(capture(module.fn).payload).fn(1) == module.fn(1) == "um_not_there"


@pytest.mark.parametrize(
    "body",
    [
        "import os\n    return os.environ['HOME']",
        "from os import getenv\n    return getenv('HOME')",
        "import time\n    return time.time()",
        "import numpy as np\n    return np.random.rand()",
        "import importlib\n    return importlib.import_module('json')",
        "m = os\n    return m.environ['HOME']",
    ],
)
def test_ambient_reads_are_caught_when_they_happen(write, body):
    from jitclient.errors import AmbientInput

    module = write(um_trap=f"import os\ndef fn(x):\n    {body}\n")
    loaded = load(capture(module.fn).payload)
    with pytest.raises(AmbientInput):
        loaded.fn(1)


def test_what_shows_a_dict_shows_what_becomes_of_it(write):
    module = write(
        um_views="""
        import collections, types
        D = {"a": 1.0}
        KEYS, VALUES, ITEMS, PROXY = D.keys(), D.values(), D.items(), types.MappingProxyType(D)
        ASKING = types.MappingProxyType(collections.defaultdict(float))
        def fn(x):
            D["b"] = 2.0
            shown = len(KEYS), sum(VALUES), len(ITEMS), PROXY["b"], ASKING["missing"]
            del D["b"]
            return x + sum(shown)
        """
    )
    assert load(capture(module.fn).payload).fn(1.0) == module.fn(1.0) == 10.0


def test_sets_in_sets_take_no_more_than_their_size():
    nested = frozenset({0})
    for n in range(60):
        nested = frozenset({nested, n})
    assert from_bytes(to_bytes(nested)) == nested


def test_a_constant_that_no_source_has_is_refused():
    def fn(x):
        return x + 902

    for constant in (len, [1], float):
        fn.__code__ = fn.__code__.replace(co_consts=(None, constant))
        with pytest.raises(CaptureError, match="which the compiler never makes"):
            capture(fn)


@pytest.mark.parametrize(
    "held", [json.dumps, fnmatch._compile_pattern, typing.AnyStr], ids=["function", "cache", "variable"]
)
def test_what_an_installed_module_holds_is_the_same_object(held):
    assert load(capture(lambda: held).payload).fn() is held


def test_a_variable_of_a_closure_may_have_no_value():
    def fn():
        return 1 if fn is None else missing

    loaded = load(capture(fn).payload).fn
    with pytest.raises(NameError):
        loaded()
    missing = 2
    assert fn() == 2
    assert load(capture(fn).payload).fn() == 2


def test_what_code_changes_as_a_class_is_made_again_is_put_back(write):
    module = write(
        um_seen="""
        import enum
        LIST, DICT, SET = [], {}, set()
        class Meta(enum.EnumMeta):
            def __new__(meta, name, *arguments, **keywords):
                LIST.append(name)
                DICT[len(DICT)] = name
                SET.add(len(SET))
                return enum.EnumMeta.__new__(meta, name, *arguments, **keywords)
        class Color(enum.Enum, metaclass=Meta):
            RED = 1
        def fn():
            return Color.RED.value, list(LIST), dict(DICT), set(SET)
        """
    )
    assert load(capture(module.fn).payload).fn() == module.fn() == (1, ["Color"], {0: "Color"}, {0})


@pytest.mark.parametrize(
    "make",
    [
        lambda numbers: numbers,
        lambda numbers: numbers.T,
        lambda numbers: numbers[::2, 1:],
        lambda numbers: numbers[::-1, ::-2],
        lambda numbers: np.asfortranarray(numbers),
        lambda numbers: np.broadcast_to(numbers[:1], (5, 6)),
        lambda numbers: numbers.reshape(2, 3, 4).transpose(1, 2, 0),
    ],
)
def test_an_array_lies_in_memory_as_it_did(make):
    array = make(np.arange(24.0).reshape(4, 6))
    again = load(capture(lambda: array).payload).fn()
    assert again.shape == array.shape
    assert again.tolist() == array.tolist()
    assert again.strides == array.strides
    assert again.flags.writeable == array.flags.writeable


def test_an_array_with_large_gaps_lies_in_their_order():
    array = np.zeros((3, 2000, 2000), np.float32)[:, :, 0].T
    array[1, 2] = 7
    again = load(capture(lambda: array).payload).fn()
    assert again.tolist() == array.tolist()
    assert again.strides == (4, 8000)


def test_a_class_is_complete_before_its_own_code_makes_an_object(write):
    module = write(
        um_made="""
        class Made:
            def __new__(cls, k=1):
                made = super().__new__(cls)
                made.k = k
                return made
            def __getnewargs__(self):
                return ()
        made = Made(2)
        def fn(x):
            return x * made.k
        """
    )
    assert load(capture(module.fn).payload).fn(3) == 6
