"""A daemon that has answered a thousand captures keeps their modules to itself, and of them what its programs need."""

import os
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

CAPTURES = 1000
REGISTERED = 100  # of them have a class that JAX's registry keeps ...
DEFINITIONS = 20  # ... of which so many are distinct
CALLING = 50  # of them call back into Python, and so need their captures as long as they are cached

MANY = f"""
    import json, sys, types
    import jax, numpy as np
    import jitclient

    SOURCE = '''
    SIZE = {{i}}.0

    class Scale:
        def __init__(self, k):
            self.k = k
        def run(self, x):
            return x * self.k + {{i}}.0

    def shifted(x):
        return x + SIZE

    def fn(x):
        return Scale({{i}}.0).run(shifted(x))
    '''

    CALLING = SOURCE + '''
    import jax

    def called(v):
        return Scale({{i}}.0).run(v)

    def fn(x):
        return jax.pure_callback(called, x, shifted(x))
    '''

    REGISTERED = '''
    import jax

    @jax.tree_util.register_pytree_node_class
    class Pair:
        def __init__(self, a, b):
            self.a, self.b = a, b
        def tree_flatten(self):
            return (self.a, self.b * {{definition}}), None
        @classmethod
        def tree_unflatten(cls, _, leaves):
            return cls(leaves[0], leaves[1] / {{definition}})

    def fn(x):
        pair = jax.tree.map(lambda v: v * {{i}}.0, Pair(x, x + {{i}}))
        return pair.a + pair.b * 0
    '''

    def module(i):
        source, definition = SOURCE, 0
        if i % {CAPTURES // REGISTERED} == 0:
            source, definition = REGISTERED, 1 + i // {CAPTURES // REGISTERED} % {DEFINITIONS}
        elif i % {CAPTURES // CALLING} == 1:
            source = CALLING
        made = types.ModuleType(f"um_many_{{i}}")
        made.__file__ = f"/nowhere/um_many_{{i}}.py"
        sys.modules[made.__name__] = made
        text = source.replace("{{i}}", str(i)).replace("{{definition}}", str(definition))
        exec(compile(text, made.__file__, "exec"), vars(made))
        return made

    x = np.ones(2, np.float32)
    answers = []
    for i in range({CAPTURES}):
        fn = module(i).fn
        answers.append(float(np.asarray(jitclient.jit(fn)(x))[0]) == float(fn(x)[0]))
    print(json.dumps([all(answers), len(answers)]))
"""

LOOKING = """
    import gc, json, sys, types
    import numpy as np

    SIZE = 1 << 20

    def look(x):
        "What the process that runs this holds of captures, as JSON in bytes."
        gc.collect()
        home = "jitclient.codec.steps.captured"
        objects = gc.get_objects()
        found = {
            "imported": list(sys.modules),
            "modules": sum(issubclass(type(o), types.ModuleType) and o.__name__ == home for o in objects),
            "functions": sum(type(o) is types.FunctionType and o.__globals__.get("__name__") == home for o in objects),
            "classes": sorted(o.__name__ for o in objects if issubclass(type(o), type) and o.__module__ == home),
            "captures": sum(type(o).__name__ == "Loaded" for o in objects),
        }
        text = json.dumps(found).encode()
        return np.frombuffer(text.ljust(SIZE), np.uint8)
"""
"""A module of an installed package: what captured code asks of its process would be refused."""

LOOK = """
    import jax, numpy as np
    import jitclient, looking_there

    @jitclient.jit
    def looking(x):
        return jax.pure_callback(looking_there.look, jax.ShapeDtypeStruct((looking_there.SIZE,), np.uint8), x)

    print(np.asarray(looking(np.float32(0))).tobytes().decode())
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "looking_there.py").write_text(textwrap.dedent(LOOKING))
    return folder


@pytest.fixture
def address(new_daemon: Callable[..., Any], installed: Path) -> Iterator[str]:
    chosen = f"unix:{os.environ['XDG_RUNTIME_DIR']}/many.sock"
    with new_daemon(chosen, env={"PYTHONPATH": str(installed)}):
        yield chosen


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_thousand_captures_leave_nothing_behind(address, installed, run_script, counts, cli, until):
    env = {"JITSERVER_ADDRESS": address, "PYTHONPATH": str(installed)}

    def look():
        found = run_script(LOOK, name="looking.py", env=env)
        until(lambda: counts(address)["sessions"] == 0, "the session to end")
        return found

    assert run_script(MANY, name="many.py", env=env) == [True, CAPTURES]
    during = look()
    assert [name for name in during["imported"] if name.startswith("um_")] == []
    assert during["captures"] == CALLING + 1, "it looks where they are, which the rest relies on"
    assert during["classes"] == ["Pair"] * DEFINITIONS + ["Scale"] * CALLING
    assert counts(address)["entries"] == CAPTURES + 1

    cli("cache", "clear", env=env)
    until(lambda: look()["captures"] == 1, "the disk to have what it takes, and only the look to be left")
    after = look()
    made = counts(address)
    assert made["traces"] == CAPTURES + 2, "the looks are the only programs that were made besides"
    assert made["entries"] == 1, "that of the look itself"
    assert after["classes"] == ["Pair"] * DEFINITIONS
    assert made["classes"] == DEFINITIONS
    methods = 4
    assert after["functions"] <= methods * (1 + DEFINITIONS)
