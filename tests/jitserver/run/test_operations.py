"""Operations of JAX that a helper has traced and lowered do what they do in plain Python, and are used by runs."""

import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ...jitclient.api.programs import Program, python
from .conftest import Environment, environment
from .test_programs import jitserver

pytestmark = pytest.mark.timeout(700)  # helpers are nice: they prepare operations while no other test has work

COMMON = """
x = jnp.linspace(-1, 1, 8)
print(jnp.cos(x) * 2 + x, x.sum(), (x > 0).astype(int), jnp.where(x > 0, x, 0), jnp.stack([x, x])[1, 2:4])
print(jax.random.normal(jax.random.key(3), (2, 3)), jax.random.split(jax.random.PRNGKey(1)))
"""

BEFORE = {
    "nothing": "",
    "x64": 'jax.config.update("jax_enable_x64", True)\n',
    "precision": 'jax.config.update("jax_default_matmul_precision", "bfloat16")\n',
    "generator": 'jax.config.update("jax_default_prng_impl", "rbg")\n',
    "threefry": 'jax.config.update("jax_threefry_partitionable", False)\n',
    "no_jit": 'jax.config.update("jax_disable_jit", True)\n',
    "partitioner": 'jax.config.update("jax_use_shardy_partitioner", False)\n',
    "nans": 'jax.config.update("jax_debug_nans", True)\n',
    "cleared": "jax.clear_caches()\n",
    "traced": "jax.make_jaxpr(lambda x: jnp.cos(x) + jax.random.normal(jax.random.key(0)))(1.0)\n",
    "jax_is_changed": "from jax._src.lax import special\nspecial.erf_inv = lambda x: x * 0\n",
    "jax_is_exchanged": "from jax._src.lax import special\nspecial.erf_inv = special.erf\n",
    "rule_is_changed": """
from jax.interpreters import mlir
mlir.register_lowering(jax.lax.cos_p, mlir.lower_fun(lambda x, **_: x * 0, multiple_results=False), platform="cpu")
""",
    "rule_for_all_is_changed": """
from jax.interpreters import mlir
mlir.register_lowering(jax.lax.cos_p, mlir.lower_fun(lambda x, **_: x * 0, multiple_results=False))
""",
}
"""Statements of programs before the same operations."""

IMPORTS = "import jax, jax.numpy as jnp, numpy as np\n"

OTHERS = {
    "for_a_while": """
        with jax.enable_x64(True):
            print(repr(jnp.arange(3) / 3), repr(jnp.sin(1)))
        print(repr(jnp.arange(3) / 3), repr(jnp.sin(1)))
        jax.config.update("jax_enable_x64", True)
        print(repr(jnp.arange(3) / 3), repr(jnp.sin(1)))
    """,
    "types": """
        for one in (1, True, 1.0, 1j, np.float32(1), np.int8(1), np.ones(2), np.ones(2, bool), jnp.ones(2, "bfloat16")):
            print(repr(jnp.add(one, 1)), repr(jnp.multiply(one, True)))
            print(repr(jnp.exp(one)), jnp.add(one, 1.5).weak_type)
        for one in (1, True):
            print(repr(jnp.round(jnp.arange(3) / 7, one)), repr(jnp.full((2,), one)))
            print(repr(jnp.repeat(jnp.arange(2), one)))
        for one in (0.0, -0.0):
            print(1 / jnp.full((2,), one), repr(jnp.pad(jnp.ones(1), 1, constant_values=one)))
    """,
    "errors": """
        import traceback
        def tries(*functions):
            for function in functions:
                try:
                    print(function())
                except Exception:
                    traceback.print_exc()
        x = jnp.ones(3)
        tries(
            lambda: x @ jnp.ones(4), lambda: x[1.5], lambda: x[7], lambda: x + "a", lambda: jnp.add(1, 2**40),
            lambda: jnp.reshape(x, (2, 2)), lambda: jax.random.normal(7), lambda: jnp.zeros(-1),
        )
        jax.lax.cos(jnp.ones(3, int))
    """,
    "nan": """
        jax.config.update("jax_debug_nans", True)
        print(jnp.log(jnp.ones(2)))
        jnp.log(-jnp.ones(2))
    """,
    "warnings": """
        print(jnp.zeros(2, "float64"), jnp.arange(3).astype("int64"), jnp.linspace(0, 1, 3, dtype="float64"))
        print(jnp.array([1, 2])[jnp.array([True, False])], jnp.clip(jnp.arange(3) * 1j, 1, 2))
    """,
    "places_in_source": """
        def f(x):
            y = jnp.where(x > 0, jnp.cos(x), 0)
            return jax.random.normal(jax.random.key(1), (8,)) + y
        jnp.where(jnp.ones(8) > 0, jnp.ones(8), 0)
        print(jax.make_jaxpr(f)(jnp.ones(8)).pretty_print(source_info=True))
    """,
    "checked": """
        from jax.experimental import checkify
        def f(x):
            return jnp.log(x) + jnp.where(x > 0, x, 0)
        print(jnp.log(jnp.ones(2)), jnp.where(jnp.ones(2) > 0, 1.0, 0))
        print(checkify.checkify(f, errors=checkify.float_checks)(-jnp.ones(2))[0].get())
    """,
    "devices": """
        device = jax.devices()[0]
        x = jax.device_put(jnp.arange(4.0), device)
        print(jnp.cos(x), (jnp.cos(x) + 1).committed, jnp.cos(jnp.arange(4.0)).committed, x.sharding)
        with jax.default_device(device):
            print(jnp.cos(jnp.arange(4.0)).committed, jnp.zeros(3).devices() == {device})
        mesh = jax.make_mesh((1,), ("a",))
        y = jax.device_put(jnp.arange(4.0), jax.NamedSharding(mesh, jax.P("a")))
        print(jnp.cos(y).sharding, jax.typeof(jnp.cos(y)))
    """,
    "threads": """
        import threading
        found = {}
        def work(n):
            for size in (3, 4, 5, 6, 7):
                found[n, size] = float(jnp.cos(jnp.linspace(0, n, size)).sum() + jax.random.normal(jax.random.key(n)))
        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        [thread.start() for thread in threads], [thread.join() for thread in threads]
        print(sorted(found.items()))
    """,
    "fork": """
        import os, sys
        x = np.ones(3)
        reads, writes = os.pipe()
        pid = os.fork()
        if not pid:
            os.write(writes, str(jnp.cos(x) + jax.random.normal(jax.random.key(0))).encode())
            os._exit(0)
        os.waitpid(pid, 0)
        print(os.read(reads, 1000), jnp.cos(x) + jax.random.normal(jax.random.key(0)))
    """,
    "processes": """
        import multiprocessing
        def f(n):
            return float(jnp.cos(jnp.linspace(0, n, 4)).sum())
        if __name__ == "__main__":
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(pool.map(f, range(2)), f(3))
    """,
    "profile": """
        import tempfile
        with tempfile.TemporaryDirectory() as folder, jax.profiler.trace(folder):
            print(jnp.cos(jnp.arange(3.0)))
    """,
    "own_primitive": """
        from jax.extend.core import Primitive
        cos = Primitive("cos")
        cos.def_impl(lambda x: x * 0)
        print(cos.bind(np.ones(2)), jnp.cos(jnp.ones(2)))
    """,
}
"""Programs that do something else."""

PROGRAMS = {
    **{name: Program(IMPORTS + change + COMMON) for name, change in BEFORE.items()},
    **{name: Program(IMPORTS + textwrap.dedent(source)) for name, source in OTHERS.items()},
    "hash_seed": Program(IMPORTS + COMMON, env={"PYTHONHASHSEED": "3"}),
    "variable": Program(IMPORTS + COMMON, env={"JAX_ENABLE_X64": "1"}),
    "variable_of_the_program": Program('import os\nos.environ["JAX_ENABLE_X64"] = "1"\n' + IMPORTS + COMMON),
    "plugins": Program(
        IMPORTS + "print(jax.devices())\n",
        files={
            "own.egg-info/entry_points.txt": "[jax_plugins]\nown = own_plugin\n",
            "own.egg-info/PKG-INFO": "Name: own\nVersion: 1\n",
            "own_plugin.py": 'def initialize():\n    print("a plugin")\n',
        },
    ),
}

CORE = {"nothing", "errors"}
IN_CI = {"x64", "hash_seed", "variable", "fork", "threads", "nan", "rule_is_changed", "traced", "warnings"}
"""Slow ones that are not thorough, of each kind: settings, processes, errors, changes of JAX, other traces."""


def _mark(name: str) -> list[pytest.MarkDecorator]:
    if name in CORE:
        return [pytest.mark.core]
    return [pytest.mark.slow] if name in IN_CI else [pytest.mark.slow, pytest.mark.thorough]


COUNTED = """
    import json, sys
    import jax, jax.numpy as jnp

    made = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, _, fun_name="", **__: made.append((event.split("/")[-1], fun_name))
    )
    double = jax.jit(lambda x: 2 * x)  # from the first function on, jax is set to compute on the CPU
    looked_for = lambda: sys.modules["jitclient.jaxside.operations.recipes"]._place_of.cache_info().misses
    before = looked_for()
    jnp.cos(jnp.linspace(0, 1, 7)) + jax.random.normal(jax.random.key(0), (7,))
    made += [("looked for", "a place")] * (looked_for() - before)
    print(json.dumps([one for one in made if "compile" not in one[0] and "cache" not in one[0]]))
"""


@pytest.fixture(scope="module")
def asked(request: pytest.FixtureRequest) -> list[str]:
    """The programs that this run tests."""
    mine = [item for item in request.session.items if item.path == request.path and hasattr(item, "callspec")]
    return [item.callspec.params["name"] for item in mine]


@pytest.fixture(scope="module")
def prepared(asked: list[str], until: Any, tmp_path_factory: Any) -> Iterator[Environment]:
    """An environment whose helper has prepared the operations of these programs, as far as it can."""
    for made in environment(until):
        made.warm()
        for name in asked:
            folder = tmp_path_factory.mktemp(name)
            PROGRAMS[name].write(folder)
            PROGRAMS[name].run(folder, jitserver, made.variables)
        _until_prepared(made, until)
        yield made


def _until_prepared(made: Environment, until: Any) -> None:
    tried = made.script(
        'import sys, jax\nprint(len(sys.modules["jitclient.jaxside.operations.preparation"].prepared))\n', "tried.py"
    )
    (learnt,) = (made.folder / "cache").glob("*/imports.json")
    until(
        lambda: made.run(tried).stdout == f"{len(json.loads(learnt.read_bytes())['operations'])}\n",
        "operations are prepared",
        500,
    )


@pytest.mark.parametrize("name", [pytest.param(name, marks=_mark(name)) for name in PROGRAMS])
def test_a_program_does_what_it_does_under_python(name: str, prepared: Environment, tmp_path: Path) -> None:
    program = PROGRAMS[name]
    program.write(tmp_path)
    expected = program.run(tmp_path, python, prepared.variables)
    assert program.run(tmp_path, jitserver, prepared.variables) == expected


@pytest.mark.core
def test_a_run_traces_lowers_and_looks_for_no_operation_that_one_before_did(cold: Environment, until: Any) -> None:
    script = cold.script(COUNTED)
    made = json.loads(cold.run(script).stdout)
    assert {name for _, name in made} >= {"_linspace", "jit(_linspace)", "cos", "jit(cos)", "_normal", "jit(_normal)"}
    cold.warm()
    _until_prepared(cold, until)
    again = cold.run("--verbose", script)
    assert (again.returncode, again.stderr) == (0, "")
    assert [name for event, name in json.loads(again.stdout) if event != "jaxpr_to_mlir_module_duration"] == []


def test_without_our_jits_jax_is_left_as_it_is(prepared: Environment) -> None:
    script = prepared.script(
        """
        import jax
        from jax._src import pjit
        from jax._src.interpreters import mlir
        print(pjit._infer_params.__module__, mlir.lower_jaxpr_to_module.__module__)
        print(pjit._infer_params_cached.cache_info())
        """
    )
    prepared.warm()  # programs with other settings have had helpers, of which there are two at most
    done = prepared.run("--no-jit", "--verbose", script)
    assert (done.stdout.split()[:2], done.stderr) == (["jax._src.pjit", "jax._src.interpreters.mlir"], "")
    assert "currsize=0" in done.stdout
