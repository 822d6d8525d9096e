"""`unchanged` sees what is rebound, and nothing else."""

import importlib

import pytest

from jitclient.capture.dump import capture

SOURCE = """
import um_watched_helper as h
from um_watched_helper import scale
K = 2.0
TABLE = {"a": 1}
class Model:
    def run(self, x):
        return x * K
    def __init__(self):
        self.calls = 0
model = Model()
def make(n):
    def inner(x):
        return x + n
    def set_n(v):
        nonlocal n
        n = v
    return inner, set_n
inner, set_n = make(1)
def plain(x):
    return x
def fn(x, k=1):
    return model.run(x) + inner(x) + plain(x) + h.scale(x) + scale(x) + TABLE["a"] + k
"""
HELPER = "FACTOR = 3.0\ndef scale(x):\n    return x * FACTOR\n"


@pytest.fixture
def module(write):
    write(um_watched_helper=HELPER)
    return write(um_watched=SOURCE)


def rebind_global(module):
    module.K = 3.0


def rebind_helper(module):
    module.plain = lambda x: x + 1


def replace_code(module):
    module.plain.__code__ = (lambda x: x + 1).__code__


def replace_defaults(module):
    module.fn.__defaults__ = (2,)


def rebind_cell(module):
    module.set_n(5)


def rebind_global_of_helper_module(module):
    module.h.FACTOR = 4.0


def rebind_method(module):
    module.Model.run = lambda self, x: x


def delete_global(module):
    del module.K


def reload_module(module):
    importlib.reload(module.h)


@pytest.mark.parametrize(
    "change",
    [
        rebind_global,
        rebind_helper,
        replace_code,
        replace_defaults,
        rebind_cell,
        rebind_global_of_helper_module,
        rebind_method,
        delete_global,
        reload_module,
    ],
)
def test_rebinding_is_seen(module, change):
    made = capture(module.fn)
    assert made.unchanged()
    change(module)
    assert not made.unchanged()


def test_other_changes_are_not(module):
    made = capture(module.fn)
    module.unrelated = 1
    module.model.calls += 1
    module.TABLE["a"] = 2  # as with jax.jit, a wrapper keeps the program it was given
    module.fn(1.0)
    assert made.unchanged()
    assert capture(module.fn).key != made.key


def test_a_name_that_appears_is_seen(write):
    module = write(um_appears="def fn(x):\n    return max(x, 1)\n")
    made = capture(module.fn)
    module.max = min
    assert not made.unchanged()


def test_a_whole_namespace_is_watched(write):
    module = write(um_whole="def fn(x):\n    return eval('K')\n")
    made = capture(module.fn)
    module.K = 1
    assert not made.unchanged()


MANY = 21


@pytest.fixture
def many(write):
    constants = "".join(f"C{n} = {n}.5\ndef h{n}(x, k=None):\n    return x * C{n}\n" for n in range(MANY))
    names = ", ".join(f"c{n}" for n in range(MANY))
    made = (
        f"def make({names}):\n    def put(n, value):\n        nonlocal {names}\n        if n < 0:\n            del c0\n"
    )
    made += "".join(f"        if n == {n}:\n            c{n} = value\n" for n in range(MANY))
    made += f"    def inner(x):\n        return x + {names.replace(', ', ' + ')}\n    return inner, put\n"
    calls = " + ".join(f"h{n}(x)" for n in range(MANY))
    end = f"inner, put = make(*range({MANY}))\nmax = max\ndef fn(x):\n    return inner(x) + max(1, {calls})\n"
    return write(um_many=constants + made + end)


@pytest.mark.parametrize("n", range(MANY))
def test_each_of_many_is_watched(many, n):
    changes = [
        lambda: setattr(many, f"C{n}", n + 0.25),
        lambda: delattr(many, f"C{n}"),
        lambda: setattr(many, f"h{n}", lambda x: x),
        lambda: setattr(getattr(many, f"h{n}"), "__code__", (lambda x, k: x).__code__),
        lambda: setattr(getattr(many, f"h{n}"), "__defaults__", (1,)),
        lambda: setattr(getattr(many, f"h{n}"), "__defaults__", None),
        lambda: many.put(n, 1.5),
    ]
    for change in changes:
        made = capture(many.fn)
        assert made.unchanged()
        change()
        assert not made.unchanged()


def test_an_equal_value_of_another_type_is_another(write):
    module = write(um_equal="K = 1\ndef fn(x, k=(1,)):\n    return x + K\n")
    made = capture(module.fn)
    module.K = True
    assert not made.unchanged()
    made = capture(module.fn)
    module.fn.__defaults__ = ((1.0,),)
    assert not made.unchanged()


def test_an_emptied_cell_is_seen(many):
    made = capture(many.fn)
    many.put(-1, None)
    assert not made.unchanged()


def test_a_deleted_name_that_shadowed_a_builtin_is_seen(many):
    many.max = min
    made = capture(many.fn)
    del many.max
    assert not made.unchanged()
