"""A daemon that has answered hundreds of captures keeps nothing of them but what JAX's registry keeps."""

import json
import os
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

CAPTURES = 200
REGISTERED = 40  # of them have a class that JAX's registry keeps ...
DEFINITIONS = 10  # ... of which so many are distinct
CALLING = 10  # of them call back into Python
CHECKED = 10  # of them are checked for NaNs while they run

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
        with jax.debug_nans(i % {CAPTURES // CHECKED} == 2):
            answers.append(float(np.asarray(jitclient.jit(fn)(x))[0]) == float(fn(x)[0]))
    print(json.dumps([all(answers), len(answers)]))
"""

LOOKING = """
    import gc, json, os, pathlib, sys, threading, time, types

    REQUEST, ANSWER = map(pathlib.Path, ("{request}", "{answer}"))

    def look():
        "What this process holds of captures."
        gc.collect()
        home = "jitclient.capture.steps.captured"
        objects = gc.get_objects()
        return {
            "imported": list(sys.modules),
            "modules": sum(issubclass(type(o), types.ModuleType) and o.__name__ == home for o in objects),
            "functions": sum(type(o) is types.FunctionType and o.__globals__.get("__name__") == home for o in objects),
            "classes": sorted(o.__name__ for o in objects if issubclass(type(o), type) and o.__module__ == home),
            "captures": sum(type(o).__name__ == "Loaded" for o in objects),
        }

    def answer():
        while True:
            time.sleep(0.02)
            if REQUEST.exists():
                REQUEST.unlink()
                new = ANSWER.with_suffix(".new")
                new.write_text(json.dumps(look()))
                new.rename(ANSWER)

    threading.Thread(target=answer, daemon=True).start()
"""
"""A `sitecustomize` of the daemon alone, which looks inside whenever a file asks it to."""

Look = Callable[[], dict[str, Any]]


@pytest.fixture
def look(tmp_path: Path, until: Callable[..., Any]) -> Look:
    def asked() -> dict[str, Any]:
        (tmp_path / "request").touch()
        until((tmp_path / "answer").exists, "the daemon to look inside")
        found: dict[str, Any] = json.loads((tmp_path / "answer").read_text())
        (tmp_path / "answer").unlink()
        return found

    return asked


@pytest.fixture
def address(new_daemon: Callable[..., Any], tmp_path: Path) -> Iterator[str]:
    chosen = f"unix:{os.environ['XDG_RUNTIME_DIR']}/many.sock"
    folder = tmp_path / "site-packages"
    folder.mkdir()
    source = textwrap.dedent(LOOKING)
    for name in ("request", "answer"):
        source = source.replace(f"{{{name}}}", str(tmp_path / name))
    (folder / "sitecustomize.py").write_text(source)
    paths = os.pathsep.join((str(folder), os.environ.get("PYTHONPATH", "")))
    with new_daemon(chosen, env={"PYTHONPATH": paths.rstrip(os.pathsep)}):
        yield chosen


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_hundreds_of_captures_leave_nothing_behind(
    address: str,
    look: Look,
    run_script: Callable[..., Any],
    counts: Callable[..., Any],
    cli: Callable[..., Any],
    until: Callable[..., Any],
) -> None:
    env = {"JITSERVER_ADDRESS": address}
    assert run_script(MANY, name="many.py", env=env) == [True, CAPTURES]
    until(lambda: counts(address)["sessions"] == 0, "the session to end")
    until(lambda: look()["captures"] == 0, "the disk to have what it takes")
    during = look()
    assert [name for name in during["imported"] if name.startswith("um_")] == []
    assert during["classes"] == ["Pair"] * DEFINITIONS
    assert counts(address)["entries"] == CAPTURES

    cli("cache", "clear", env=env)
    after = look()
    made = counts(address)
    assert made["traces"] == CAPTURES
    assert made["entries"] == 0
    assert after["classes"] == ["Pair"] * DEFINITIONS
    assert made["classes"] == DEFINITIONS
    methods = 4
    assert after["functions"] <= methods * DEFINITIONS
