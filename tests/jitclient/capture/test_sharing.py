"""Identical definitions share one class; different or mutable ones do not."""

import gc
import sys
import weakref

import pytest

from jitclient.capture.dump import capture
from jitclient.capture.load import load
from jitclient.capture.steps.sharing import class_count

SOURCE = """
import jax
import jax.numpy as jnp
BIG = jnp.ones(100)
MISSING = object()
EXTRA = 1
@jax.tree_util.register_pytree_node_class
class P:
    k = 2.0
    def __init__(self, w, s=MISSING):
        self.w, self.s = w, s
    def tree_flatten(self):
        return (self.w,), None
    @classmethod
    def tree_unflatten(cls, _, children):
        return cls(*children)
    def twice(self):
        return helper(self.w)
    def other(self):
        return Q(self.w)
class Q(P):
    def back(self):
        return P(self.w)
def helper(x):
    return x * 2
def one(x):
    return P(x).twice() + BIG.sum()
def two(x):
    p = Q(x).other().back()
    return p.w if p.s is MISSING else None
def three(x):
    return P(x).w + EXTRA
"""


@pytest.fixture
def module(write):
    return write(um_share=SOURCE)


def loaded(module, name):
    return load(capture(getattr(module, name), (module.P,)).payload)


def test_captures_share_a_class(module):
    one, two, three = (loaded(module, name) for name in ("one", "two", "three"))
    assert one.extras[0] is two.extras[0] is three.extras[0]
    assert float(one.fn(1.0)) == 102.0
    assert two.fn(3.0) == 3.0  # the sentinel is the same for both
    assert three.fn(1.0) == 2.0


def test_another_definition_is_another_class(module, write):
    one = loaded(module, "one")
    edited = loaded(write(um_share=SOURCE.replace("x * 2", "x * 3")), "one")
    assert edited.extras[0] is not one.extras[0]
    assert float(edited.fn(1.0)) == 103.0
    assert float(one.fn(1.0)) == 102.0


def test_loading_again_makes_no_more_classes(module):
    keep = loaded(module, "one")
    count = class_count()
    for _ in range(5):
        assert loaded(module, "one").extras[0] is keep.extras[0]
    assert class_count() == count


def test_a_class_that_was_changed_is_not_shared(module):
    first = loaded(module, "three").extras[0]
    first.k = 5.0
    second = loaded(module, "three").extras[0]
    assert second is not first
    assert second.k == 2.0


def test_a_class_that_reads_mutable_state_is_not_shared(write):
    module = write(
        um_mutable="""
        LOG = []
        class A:
            def note(self, x):
                LOG.append(x)
                return len(LOG)
        def fn(x):
            return A().note(x)
        def gn(x):
            return A().note(x) + len(LOG)
        """
    )
    first, second = load(capture(module.fn).payload), load(capture(module.gn).payload)
    assert first.fn(1) == 1
    assert second.fn(1) == 2


def test_a_class_that_jax_keeps_does_not_keep_the_rest(module):
    one = loaded(module, "one")
    names = one.extras[0].twice.__globals__
    assert "helper" in names
    assert "BIG" not in names
    fn = weakref.ref(one.fn)
    del one
    gc.collect()
    assert fn() is None


def test_classes_that_jax_does_not_keep_are_freed(write):
    module = write(um_freed="class A:\n    k = 1\n\ndef fn(x):\n    return A.k\n")
    made = capture(module.fn, (module.A,))
    one = load(made.payload)
    cls = weakref.ref(one.extras[0])
    assert load(made.payload).extras[0] is cls()
    del one
    gc.collect()
    assert cls() is None


@pytest.mark.slow
def test_a_few_hundred_captures_leave_nothing_behind(write):
    """Bounded by what is alive: no modules, no functions, no classes that JAX does not keep."""
    template = """
    class A:
        k = {n}
    DATA = list(range({n}))
    def helper(x):
        return x + A.k
    def fn(x):
        return helper(x) + len(DATA)
    """
    modules, count = set(sys.modules), class_count()
    functions = []
    for n in range(200):
        loaded = load(capture(write(um_many=template.format(n=n)).fn).payload)
        assert loaded.fn(1) == 1 + 2 * n
        functions.append(weakref.ref(loaded.fn))
    del loaded
    gc.collect()
    assert not any(function() for function in functions)
    assert class_count() <= count + 1
    assert set(sys.modules) - modules <= {"um_many"}


TWINS = """
def make():
    class A:
        k = 1
    return A
def derive(base):
    class C(base):
        pass
    return C
A, B = make(), make()
C = derive({base})
def fn(x):
    return isinstance(B(), A), isinstance(C(), A), isinstance(C(), B)
"""


def test_equal_definitions_in_one_capture_stay_two(write):
    keep = []
    for base in "ABABBA":
        module = write(um_twins=TWINS.format(base=base))
        loaded = load(capture(module.fn, (module.A, module.B)).payload)
        keep.append(loaded)
        assert loaded.fn(1) == module.fn(1) == (False, base == "A", base == "B")
        assert [loaded.index_of(extra) for extra in loaded.extras] == [0, 1]
    assert keep[0].extras == keep[1].extras == keep[-1].extras


def test_a_function_that_was_changed_is_not_shared(write):
    module = write(
        um_counts="""
        def scale(x):
            scale.n += 1
            return x * scale.n
        scale.n = 0
        class A:
            def times(self, x):
                return scale(x)
        def fn(x):
            return A().times(x)
        """
    )
    made = capture(module.fn)
    first = load(made.payload)
    assert first.fn(5) == 5
    second = load(made.payload)
    assert second.fn(5) == 5
    first.fn.__globals__["A"].times.__defaults__ = (1,)
    assert load(made.payload).fn(5) == 5
