"""A module that is imported in a body: what it holds travels, once something has imported it."""

import importlib
import sys

import numpy as np
import pytest

from jitclient.capture.dump import capture
from jitclient.capture.load import load
from jitclient.errors import CaptureError

SOURCE = """
import threading
import numpy as np
import numpy.linalg as la
import os.path
from functools import partial
from math import *
K = 2.0
SIZES = [1, {"a": (2.0, 3)}]
DTYPE = np.float32
NUMBER = int
class Base:
    k = 1
def scale(x):
    return x * K
def shifted(x, by=3, *, times=(1,)):
    return x * times[0] + by
class Model:
    'A model.'
    k = 1.0
    sizes = [1, 2]
    note: str = "none"
    class Inner:
        k = 1
    def __init__(self, k=1):
        self.own = k
    def run(self, x, k=1):
        return x * self.k * k
    @property
    def double(self):
        return self.own * 2
    @staticmethod
    def half(x):
        return x / 2
    @classmethod
    def named(cls):
        return len(cls.__name__)
"""
COMPUTED = """
TABLE = np.array([3.0])
LOCK = threading.Lock()
BASE = Base()
"""
BODY = "def fn(x):\n    import um_inner\n    return {}\n"


def key_and_value(module, argument=2.0):
    made = capture(module.fn)
    assert made.unchanged()
    return made, load(made.payload, made.locations).fn(argument)


@pytest.mark.parametrize(
    ("name", "value", "read", "expected"),
    [
        ("TABLE", np.array([5.0]), "um_inner.TABLE[0] * x", 10.0),
        ("DTYPE", np.int32, "um_inner.DTYPE(x + 0.5)", 2),
        ("NUMBER", str, "um_inner.NUMBER(x)", "2.0"),
        ("SIZES", [1, {"a": (2.0, 4)}], "um_inner.SIZES[1]['a'][1]", 4),
        ("la", np, "hasattr(um_inner.la, 'float32')", True),
        ("K", -2.0, "um_inner.scale(x)", -4.0),
        ("pi", 3, "um_inner.pi", 3),
    ],
)
def test_what_was_rebound_travels(write, name, value, read, expected):
    inner = write(um_inner=SOURCE + COMPUTED)
    module = write(um_body=BODY.format(read))
    before, was = key_and_value(module)
    assert was == module.fn(2.0)
    original = getattr(inner, name)
    setattr(inner, name, value)
    assert not before.unchanged()
    after, now = key_and_value(module)
    assert after.key != before.key
    assert now == module.fn(2.0) == expected
    setattr(inner, name, original)
    assert capture(module.fn).key == before.key


def test_a_computed_value_gives_the_same_key_again(write):
    keys = set()
    for _ in range(2):
        write(um_inner=SOURCE + COMPUTED)
        keys.add(capture(write(um_body=BODY.format("um_inner.TABLE * x")).fn).key)
    assert len(keys) == 1


def test_what_cannot_travel_fails_only_when_used(write):
    inner = write(um_inner=SOURCE + COMPUTED + "GATE = 1\n")
    inner.GATE = (i for i in range(3))
    assert load(capture(write(um_body=BODY.format("um_inner.scale(x)")).fn).payload).fn(2.0) == 4.0
    loaded = load(capture(write(um_body=BODY.format("next(um_inner.GATE)")).fn).payload)
    with pytest.raises(CaptureError):
        loaded.fn(2.0)


def test_values_are_made_of_the_classes_of_the_module(write):
    write(um_inner=SOURCE + COMPUTED)
    module = write(um_body=BODY.format("isinstance(um_inner.BASE, um_inner.Base)"))
    assert key_and_value(module)[1] is True


def set_on(owner, name, value):
    return lambda um: setattr(eval(owner, {"um": um}), name, value)


CHANGES = {
    "attribute of a class": (set_on("um.Model", "k", 5.0), "um_inner.Model().run(x)"),
    "list of a class": (lambda um: um.Model.sizes.append(3), "len(um_inner.Model.sizes)"),
    "annotated attribute": (set_on("um.Model", "note", "some"), "um_inner.Model.note"),
    "method": (set_on("um.Model", "run", lambda self, x: x + 100), "um_inner.Model().run(x)"),
    "default of a method": (lambda um: setattr(um.Model.run, "__defaults__", (3,)), "um_inner.Model().run(x)"),
    "property": (set_on("um.Model", "double", property(lambda self: 9)), "um_inner.Model().double"),
    "static method": (set_on("um.Model", "half", staticmethod(lambda x: x)), "um_inner.Model.half(x)"),
    "class method": (set_on("um.Model", "named", classmethod(lambda cls: 1)), "um_inner.Model.named()"),
    "special method": (set_on("um.Model", "__bool__", lambda self: False), "bool(um_inner.Model())"),
    "new attribute": (set_on("um.Model", "z", 5), "getattr(um_inner.Model, 'z', 7)"),
    "deleted attribute": (lambda um: delattr(um.Model, "k"), "getattr(um_inner.Model, 'k', 7)"),
    "attribute of a class in a class": (set_on("um.Model.Inner", "k", 5), "um_inner.Model.Inner.k"),
    "default of a function": (lambda um: setattr(um.shifted, "__defaults__", (4,)), "um_inner.shifted(x)"),
    "default of another type": (lambda um: setattr(um.shifted, "__defaults__", (3.0,)), "str(um_inner.shifted(2))"),
    "keyword default": (lambda um: setattr(um.shifted, "__kwdefaults__", {"times": (2,)}), "um_inner.shifted(x)"),
    "attribute of a function": (set_on("um.scale", "z", 5), "getattr(um_inner.scale, 'z', 7)"),
    "deleted name": (lambda um: delattr(um, "K"), "getattr(um_inner, 'K', 7)"),
}
NOT_WATCHED = ("list of a class", "keyword default", "attribute of a function")  # as in any capture


@pytest.mark.parametrize("change", CHANGES)
def test_what_was_changed_after_the_import_travels(write, change):
    inner = write(um_inner=SOURCE)
    make, read = CHANGES[change]
    module = write(um_body=BODY.format(read))
    before, was = key_and_value(module)
    assert was == module.fn(2.0)
    make(inner)
    assert module.fn(2.0) != was
    assert before.unchanged() == (change in NOT_WATCHED)
    after, now = key_and_value(module)
    assert after.key != before.key
    assert now == module.fn(2.0)


def test_a_docstring_that_nothing_reads_changes_nothing(write):
    keys = set()
    for doc in ("", "    'one'\n", "    'two'\n"):
        write(um_inner=f"class A:\n{doc}    k = 1\nclass B(A):\n{doc or '    pass'}\n")
        keys.add(key_and_value(write(um_body=BODY.format("um_inner.B.k * x")))[0].key)
    assert len(keys) == 1


def test_a_docstring_that_something_reads_matters(write):
    read = "len(um_inner.A.__doc__)"
    values = []
    for doc in ("one", "three"):
        write(um_inner=f"class A:\n    '{doc}'\n    k = 1\n")
        values.append(key_and_value(write(um_body=BODY.format(read)))[1])
    assert values == [3, 5]


USUAL = {
    "__init__.py": "from .h import k\nfrom .consts import K\n",
    "consts.py": "K = 3.0\nUNUSED = 1\n",
    "h.py": "from .consts import K\nOTHER = 1\ndef k(x):\n    return x * K\ndef unused(x):\n    return x\n",
    "work.py": "def fn(x):\n    from .h import k\n    return k(x)\n",
}


@pytest.fixture
def usual(write, tmp_path, monkeypatch):
    """A package that imports of its submodules, imported again from sources that may differ."""

    def imported(changes=()):
        for name in [name for name in sys.modules if name.startswith("um_usual")]:
            monkeypatch.delitem(sys.modules, name)
        for name, text in {**USUAL, **dict(changes)}.items():
            path = tmp_path / "um_usual" / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        importlib.invalidate_caches()
        return importlib.import_module("um_usual.work")

    return imported


def test_what_is_surely_loaded_gives_only_the_names_that_are_imported(usual):
    before, value = key_and_value(usual())
    assert value == 6.0
    edited = {"h.py": USUAL["h.py"].replace("OTHER = 1", "OTHER = 2").replace("return x\n", "return 7\n")}
    edited["consts.py"] = "K = 3.0\nUNUSED = 2\n"
    edited["__init__.py"] = USUAL["__init__.py"] + "MORE = 1\n"
    assert capture(usual(edited).fn).key == before.key
    after, value = key_and_value(usual({"consts.py": "K = 4.0\n"}))
    assert value == 8.0
    assert after.key != before.key


def test_a_name_that_was_rebound_in_what_is_surely_loaded_is_seen(usual):
    module = usual()
    before, _ = key_and_value(module)
    sys.modules["um_usual.h"].k = lambda x: x + 100
    assert not before.unchanged()
    assert key_and_value(module)[1] == 102.0


def test_what_the_capture_holds_is_what_an_import_gives(write):
    write(um_kinds="class Base:\n    pass\nclass Kind(Base):\n    pass\nTABLE = {}\n")
    module = write(
        um_body="""
        import um_kinds
        def fn(x, held=(um_kinds.Kind(), um_kinds.TABLE)):
            from um_kinds import Base, Kind, TABLE
            return isinstance(held[0], Kind), isinstance(held[0], Base), held[1] is TABLE
        """
    )
    assert key_and_value(module)[1] == (True, True, True)


@pytest.mark.parametrize(
    "body",
    [
        "import um_usual.h as q\n    return q.k(x)",
        "import um_usual\n    return um_usual.h.k(x)",
        "from um_usual import h\n    return h.k(x)",
        "from um_usual.h import k\n    return k(x)",
        "import um_usual.h\n    return um_usual.h.k(x)",
    ],
)
def test_a_module_that_nothing_has_imported_yet_is_not_captured(usual, write, monkeypatch, body):
    usual()
    module = write(um_body=f"def fn(x):\n    {body}\n")
    imported, value = key_and_value(module)
    assert value == 6.0
    for name in [name for name in sys.modules if name.startswith("um_usual")]:
        monkeypatch.delitem(sys.modules, name)
    assert not imported.unchanged()
    with pytest.raises(CaptureError, match=r"imports um_usual.* in its body, which nothing has imported before"):
        capture(module.fn)
    assert module.fn(2.0) == 6.0
    assert key_and_value(module)[1] == 6.0


@pytest.mark.parametrize(
    "body", ["import um_usual.h", "import um_usual", "from um_usual import h\n    import um_usual"]
)
def test_a_name_that_was_added_to_a_package_above_is_seen(usual, write, body):
    read = "return x * getattr(um_usual, 'ADDED', 1.0)"
    keys, values = set(), []
    for added in ("", "ADDED = 5.0\n", "ADDED = 7.0\n"):
        usual({"__init__.py": USUAL["__init__.py"] + added})
        found, value = key_and_value(write(um_body=f"def fn(x):\n    {body}\n    {read}\n"))
        keys.add(found.key)
        values.append(value)
    assert values == [2.0, 10.0, 14.0]
    assert len(keys) == 3
