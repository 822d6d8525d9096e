"""A program that sets what a library keeps in its modules gets its own values; its next process finds the program."""

import importlib.util
from typing import Any

import pytest

BY_VARIABLE = """
    import json, equinox, jitclient

    @jitclient.jit
    def checked(x):
        return equinox.error_if(x, x < 0, "negative") * 2

    print(json.dumps([repr(float(checked(-1.0))), float(checked(1.0))]))
"""


@pytest.mark.timeout(300)
def test_a_library_s_own_jits_obey_the_program_s_variables(own: Any) -> None:
    with own.serving():
        for way, negative in [("nan", "nan"), ("off", "-2.0")]:
            assert own.run(BY_VARIABLE, EQX_ON_ERROR=way) == [negative, 2.0]
        before = own.counts()
        for way, negative in [("off", "-2.0"), ("nan", "nan")]:
            assert own.run(BY_VARIABLE, EQX_ON_ERROR=way) == [negative, 2.0]
        assert found_all(before, own.counts())


def found_all(before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Whether no process has made or traced a program since."""
    return all(before[name] == after[name] for name in ("traces", "client_traces", "local_runs", "misses"))


HELD = """
    import functools, json, os, sys, types
    import equinox, jax, jitclient, numpy as np, optax

    Linear, G = equinox.nn.Linear, os.environ["G"]
    if G:
        Linear.gain = equinox.filter_grad.gain = float(G)
        optax.adam.__defaults__ = (float(G), *optax.adam.__defaults__[1:])
    layer = Linear(2, 2, key=jax.random.key(0))

    def of(held):
        return lambda x: x * getattr(held, "gain", 0.9)

    def default(x, held=Linear):
        return x * getattr(held, "gain", 0.9)

    space, items = types.SimpleNamespace(held=Linear), [Linear]
    functions = [
        *map(of, (Linear, layer, equinox.filter_grad)),
        default,
        lambda x: x * getattr(space.held, "gain", 0.9),
        lambda x: x * getattr(items[0], "gain", 0.9),
        functools.partial(lambda held, x: x * getattr(held, "gain", 0.9), Linear),
        (lambda held: lambda x: x * held.__defaults__[0])(optax.adam),
    ]
    print(json.dumps([float(jitclient.jit(f)(np.float32(10))) for f in functions]))
"""


@pytest.mark.timeout(300)
def test_attributes_set_on_what_a_function_holds_of_a_package_count(own: Any) -> None:
    with own.serving():
        for gain, value in [("", 9.0), ("5", 50.0)] * 2:
            assert own.run(HELD, G=gain) == [value] * 8
        before = own.counts()
        assert own.run(HELD, G="") == [9.0] * 8
        assert found_all(before, own.counts())


DISPATCHED = """
    import json, os, jax.numpy as jnp, jitclient, lineax

    def solved(operator):
        return jitclient.jit(lambda a, b: lineax.linear_solve(operator(a), b).value)

    functions = [
        solved(lineax.MatrixLinearOperator),
        solved(lambda a: lineax.DiagonalLinearOperator(jnp.diag(a)) * 2),
        solved(lambda a: lineax.TaggedLinearOperator(lineax.MatrixLinearOperator(a), lineax.lower_triangular_tag)),
    ]
    a, b = jnp.eye(2) * 2, jnp.ones(2)
    found = {n: functions[n](a, b).tolist() for n in json.loads(os.environ["ORDER"])}
    print(json.dumps([found[n] for n in range(3)]))
"""
REGISTERED = """
    import json, distrax, jax.numpy as jnp, jitclient
    from flax import nnx

    graph, state = nnx.split(nnx.Linear(2, 3, rngs=nnx.Rngs(0)))

    @jitclient.jit
    def size(state, x):
        entropy = distrax.Categorical(jnp.zeros(3)).entropy()
        return entropy * 0 + nnx.merge(graph, state)(x).size

    print(json.dumps(float(size(state, jnp.ones(2)))))
"""


@pytest.mark.timeout(300)
def test_functions_in_another_order_are_found(own: Any) -> None:
    with own.serving():
        expected = [[0.5, 0.5], [0.25, 0.25], [0.5, 0.5]]
        assert own.run(DISPATCHED, ORDER="[0, 1, 2]") == expected
        before = own.counts()
        for order in ("[0, 1, 2]", "[2, 0, 1]"):
            assert own.run(DISPATCHED, ORDER=order) == expected
        assert found_all(before, own.counts())


@pytest.mark.timeout(300)
@pytest.mark.skipif(importlib.util.find_spec("distrax") is None, reason="NOT TESTED HERE: distrax is not installed")
def test_a_class_that_the_trace_registers_is_no_state(own: Any) -> None:
    with own.serving():
        assert own.run(REGISTERED) == 3.0
        before = own.counts()
        assert own.run(REGISTERED) == 3.0
        assert found_all(before, own.counts())


LATE = """
    import json, sys, jax.numpy as jnp, numpy as np, jitclient

    @jitclient.jit
    def quadrature(x):
        return x * jnp.asarray(np.polynomial.legendre.leggauss(3)[1])

    print(json.dumps([quadrature(jnp.ones(3)).tolist(), "numpy.polynomial" in sys.modules]))
"""


def test_modules_that_a_trace_loads_are_no_change_of_its_function(own: Any) -> None:
    with own.serving():
        *values, is_loaded = own.run(LATE)
        assert is_loaded
        before = own.counts()
        assert own.run(LATE) == [*values, False]
        assert found_all(before, own.counts())


LAZILY = """
    import json, os, jitclient
    if "EARLY" in os.environ:
        import lazily.table
    import lazily
    minus = float(os.environ.get("MINUS", 0))

    @jitclient.jit
    def doubled(x):
        return lazily.made().op(x)

    @jitclient.jit
    def used(x):
        return lazily.made().op(x) - minus

    values = [float(doubled(1.0)), float(used(1.0))]
    print(json.dumps([*values, float(lazily.made().TWO)]))
"""


@pytest.mark.timeout(300)
def test_modules_that_a_trace_imports_keep_none_of_its_values(own: Any) -> None:
    """Neither the daemon's, which other programs would meet, nor the program's own, where JAX leaves one."""
    package = own.folder / "site" / "lazily"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("def made():\n    from lazily import table\n    return table\n")
    (package / "table.py").write_text("import jax.numpy as jnp\nTWO = jnp.float32(1) + 1\ndef op(x): return x * TWO\n")
    about = own.folder / "site" / "lazily-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: lazily\nVersion: 1.0\n")
    (about / "RECORD").write_text("lazily/__init__.py,,\nlazily/table.py,,\n")
    path = {"PYTHONPATH": str(package.parent)}
    with own.serving(**path):
        assert own.run(LAZILY, **path) == [2.0, 2.0, 2.0]
        assert own.run(LAZILY, EARLY="1", MINUS="1", **path) == [2.0, 1.0, 2.0]
        before = own.counts()
        for more in ({}, {"EARLY": "1"}, {"EARLY": "1", "MINUS": "1"}):
            assert own.run(LAZILY, **more, **path)[2] == 2.0
        assert found_all(before, own.counts())
        assert before["client_traces"] == 0
