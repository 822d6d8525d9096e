"""Objects that `capture` refuses, the messages, and what it returns besides the bytes."""

import subprocess
import sys
import types

import equinox
import pytest
from jax import export

from jitclient.capture.dump import capture
from jitclient.capture.load import load
from jitclient.errors import AmbientInput, CaptureError


def test_error_names_the_way_to_what_cannot_be_captured(write):
    module = write(
        um_way="""
        CONFIG = {"data": {"items": (i for i in [1])}}
        class Reader:
            def __init__(self):
                self.source = CONFIG
        reader = Reader()
        def helper(x):
            return reader.source, x
        def step(x):
            return helper(x)
        """
    )
    with pytest.raises(CaptureError) as caught:
        capture(module.step)
    message = str(caught.value)
    assert "generator" in message
    way = ["global helper of step", "global reader of helper", "attribute source of Reader"]
    way += ["attribute data of dict", "attribute items of dict"]
    assert " -> ".join(way) in message


@pytest.mark.parametrize(
    ("header", "expression", "named"),
    [
        ("import os", "os.environ['HOME']", "os.environ"),
        ("from os import getenv", "getenv('HOME')", "os.getenv"),
        ("import os", "os.path.exists('a')", "os.path.exists"),
        ("", "open('a').read()", "open"),
        ("", "__import__('json')", "__import__"),
        ("import sys", "sys.argv", "sys.argv"),
        ("import sys", "sys.modules", "sys.modules"),
        ("import time", "time.time()", "time.time"),
        ("import random", "random.random()", "random.random"),
        ("import numpy as np", "np.random.normal()", "numpy.random.normal"),
        ("import datetime", "datetime.datetime.now()", "datetime.now"),
        ("from datetime import datetime", "datetime.now()", "datetime.now"),
        ("import importlib", "importlib.import_module('json')", "importlib.import_module"),
        ("import contextvars; V = contextvars.ContextVar('v')", "V.get()", "ContextVar 'v'"),
        ("F = open('/dev/null')", "F.read()", "file '/dev/null'"),
        ("", "fn.__code__.co_firstlineno", "reads line numbers"),
        ("", "fn.__code__ == print", "reads line numbers"),
        ("import dis", "list(dis.findlinestarts(fn))", "reads line numbers"),
    ],
)
def test_ambient_inputs_are_named(write, header, expression, named):
    module = write(um_ambient=f"{header}\ndef fn(x):\n    return {expression}\n")
    with pytest.raises(AmbientInput, match=named.replace(".", r"\.")):
        capture(module.fn)
    if hasattr(module, "F"):
        module.F.close()


def test_builtins_of_its_own_are_refused(write):
    module = write(
        um_builtins="""
        names = {"__builtins__": {"abs": lambda x: 3}}
        exec("def fn(x): return abs(x)", names)
        fn = names["fn"]
        """
    )
    with pytest.raises(CaptureError, match="builtins of their own"):
        capture(module.fn)


def test_attributes_of_a_combination_of_flags_are_refused(write):
    module = write(
        um_flags="""
        import enum
        class F(enum.Flag): A = 1; B = 2
        AB = F.A | F.B
        def fn(x): return F(3).k
        """
    )
    capture(module.fn)
    module.AB.k = 1
    with pytest.raises(CaptureError, match="has attributes that the program has set"):
        capture(module.fn)


def test_key_of_a_generator_with_the_tag_of_jaxs_is_refused(write):
    module = write(
        um_own_generator="""
        import jax
        from jax.extend.random import define_prng_impl
        PARTS = dict.fromkeys(["seed", "split", "random_bits", "fold_in"], lambda *args: jax.numpy.zeros(4, "uint32"))
        OWN = define_prng_impl(key_shape=(4,), **PARTS, name="own", tag="rbg")
        JAXS, KEY = jax.random.key(1, impl="rbg"), jax.random.key(1, impl=OWN)
        def jaxs(x): return JAXS
        def own(x): return KEY
        """
    )
    capture(module.jaxs)
    with pytest.raises(CaptureError, match="key of a random number generator of the program's own"):
        capture(module.own)


def test_method_that_is_never_called_may_be_ambient(write):
    module = write(
        um_lenient="""
        import os
        class A:
            def save(self):
                return os.environ["HOME"]
            def run(self, x):
                return x + 1
            def bad(self, x):
                return self.save()
        a = A()
        def good(x):
            return a.run(x)
        def bad(x):
            return a.bad(x)
        """
    )
    assert load(capture(module.good).payload).fn(1) == 2
    with pytest.raises(AmbientInput, match=r"os\.environ"):
        load(capture(module.bad).payload).fn(1)


def test_user_code_on_an_installed_class_is_refused(write):
    module = write(
        um_monkey="""
        import fractions
        def half(self):
            return self / 2
        fractions.Fraction.half = half
        def fn(x):
            return fractions.Fraction(x).half()
        """
    )
    try:
        with pytest.raises(CaptureError, match=r"fractions\.Fraction\.half"):
            capture(module.fn)
    finally:
        del module.fractions.Fraction.half


@pytest.mark.parametrize(
    "table",
    [
        "{'of': f'A:{id(A)}'}",
        "{id(A): 2.0}",
        "[repr(object())]",
        "[type('B', (), {'__hash__': lambda b: hash('b'), '__eq__': lambda b, o: True})()]\nT[0].h = hash('b')",
    ],
)
def test_capture_that_no_process_repeats_is_refused(write, table):
    module = write(um_address=f"class A: pass\nT = {table}\ndef fn(x): return x, A, T\n")
    with pytest.raises(CaptureError, match=r"differs? between processes"):
        capture(module.fn)


def test_hash_of_symbolic_dimension_is_no_part():
    (dimension,) = export.symbolic_shape("n")
    key = capture(lambda x: dimension).key
    hash(dimension)
    for _ in range(2):
        assert capture(lambda x: dimension).key == key
        dimension._hash = 2**40  # as in a process with another seed


def test_packages_are_those_referred_to(write):
    module = write(
        um_packages="""
        import math
        import numpy as np
        import optax
        def plain(x):
            return math.sin(x)
        def with_numpy(x):
            return np.sin(x)
        def with_optax(x):
            return optax.sgd(0.1).init(x)
        def in_body(x):
            import equinox
            return equinox.is_array(x)
        """
    )
    assert capture(module.plain).packages == ()
    assert capture(module.with_numpy).packages == ("numpy",)
    assert "optax" in capture(module.with_optax).packages
    assert capture(module.in_body).packages == ("equinox",)


def test_a_stand_in_of_a_package_is_the_module_that_it_loads(monkeypatch):
    kind = type("LazyLoader", (types.ModuleType,), {"__module__": "equinox"})
    monkeypatch.setattr(equinox, "LazyLoader", kind, raising=False)

    def user(module):
        return lambda x: module.relu(x)

    assert capture(user(kind("equinox.nn"))).key == capture(user(equinox.nn)).key


def test_extras_are_captured_together_with_the_function(write):
    module = write(
        um_extras="""
        class P:
            pass
        def fn(x):
            return isinstance(x, P)
        """
    )
    loaded = load(capture(module.fn, (module.P, ("static", 3))).payload)
    cls, static = loaded.extras
    assert loaded.fn(cls())
    assert static == ("static", 3)
    assert capture(module.fn).key != capture(module.fn, (module.P,)).key


def test_numbering_is_the_same_on_both_sides(write):
    module = write(
        um_numbers="""
        class P:
            def __init__(self, k):
                self.k = k
        p = P(3)
        def helper(x):
            return x + p.k
        def fn(x):
            return helper(x)
        """
    )
    made = capture(module.fn, (module.P, "mode", 3, module.P))
    loaded = load(made.payload)
    for obj in (module.fn, module.helper, module.p, module.P, "mode", 3):
        index = made.index_of(obj)
        assert made.object_at(index) is obj
        assert loaded.index_of(loaded.object_at(index)) == index
    assert [made.index_of(o) for o in (module.P, "mode", 3)] == [0, 1, 2]
    assert loaded.object_at(made.index_of(module.p)).k == 3
    assert loaded.object_at(made.index_of(module.P)) is type(loaded.object_at(made.index_of(module.p)))
    assert made.index_of(True) is None  # equal to nothing that was captured
    assert made.index_of(object()) is None
    with pytest.raises(IndexError):
        made.object_at(10_000)
    with pytest.raises(IndexError):
        loaded.object_at(-1)


@pytest.mark.parametrize("method", ["__reduce_ex__", "__getstate__", "__getattr__", "__getattribute__"])
def test_objects_that_do_not_let_themselves_be_looked_at(write, method):
    module = write(
        um_hostile=f"""
        class Hostile:
            def {method}(self, *args):
                raise RuntimeError("keep off")
        hostile = Hostile()
        def fn(x):
            return hostile
        """
    )
    if method != "__getattribute__":  # nothing that a capture needs goes through it
        assert type(load(capture(module.fn).payload).fn(1)).__name__ == "Hostile"
    else:
        with pytest.raises(CaptureError, match=r"keep off.*fn"):
            capture(module.fn)


def test_a_deleted_array_is_refused(write):
    module = write(
        um_deleted="""
        import jax.numpy as jnp
        W = jnp.ones(3)
        W.delete()
        def fn(x):
            return x * W
        """
    )
    with pytest.raises(CaptureError, match="deleted"):
        capture(module.fn)


def test_deep_structures(write):
    module = write(
        um_deep="""
        class Link:
            def __init__(self, tail):
                self.tail = tail
        chain = None
        for _ in range(5000):
            chain = Link([chain])
        nested = ()
        for _ in range(5000):
            nested = (nested,)
        def fn(x):
            link, n = chain, 0
            while link is not None:
                link, n = link.tail[0], n + 1
            return n
        def too_deep(x):
            return nested
        """
    )
    assert load(capture(module.fn).payload).fn(0) == 5000
    with pytest.raises(CaptureError, match="nested too deeply"):
        capture(module.too_deep)


def test_capturing_imports_no_jax():
    program = """
import sys
from jitclient.capture.dump import capture
import numpy as np
W = np.ones(3)
def helper(x):
    return x * W
def fn(x):
    import jax
    return helper(x)
assert capture(fn).key
{extra}
sys.exit(sum(name in sys.modules for name in ("jax", "rpyc")))
"""
    assert subprocess.run([sys.executable, "-c", program.format(extra="")], check=False).returncode == 0
    # and the test can fail
    extra = "fn(1)"
    assert subprocess.run([sys.executable, "-c", program.format(extra=extra)], check=False).returncode > 0
