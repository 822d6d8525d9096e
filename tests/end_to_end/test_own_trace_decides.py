"""The caller's own trace decides: whatever else is wrong costs warmth, never an answer."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
Counts = Callable[[], dict[str, int]]

COUNTED = ("traces", "compiles", "client_traces", "local_runs", "hits")


@pytest.fixture
def own_daemon(
    new_daemon: Callable[..., Any], counts: Callable[..., dict[str, Any]], run_script: Run, tmp_path: Path
) -> Iterator[tuple[Run, Counts]]:
    """A function that runs a program with a daemon of the test's own, and one that counts since it was asked last."""
    installed = tmp_path / "site-packages"
    installed.mkdir()
    (installed / "scaling.py").write_text("GAIN = 2.0\n\ndef scaled(x):\n    return x * GAIN\n")
    address, last = f"unix:{tmp_path}/s", dict.fromkeys(COUNTED, 0)
    environment = {"PYTHONPATH": str(installed)}

    def run(source: str, fallback: str = "local", **env: str) -> Any:
        given = {"JITSERVER_ADDRESS": address, "JITSERVER_FALLBACK": fallback, **environment, **env}
        return run_script(source, env=given)

    def since() -> dict[str, int]:
        nonlocal last
        now = counts(address)
        found = {name: now[name] - last[name] for name in COUNTED}
        last = {name: now[name] for name in COUNTED}
        return found

    with new_daemon(address, env=environment):
        yield run, since


def test_what_both_trace_alike_is_found_without_a_trace(own_daemon: tuple[Run, Counts]) -> None:
    run, since = own_daemon
    program = """
        import json, jax, jitclient
        traces = []

        class Log:
            def write(self, text): traces.append(text)

        @jitclient.jit
        def f(x):
            print("tracing")
            return {"y": jax.numpy.sin(x), "n": 3}

        import contextlib
        with contextlib.redirect_stdout(Log()):
            values = [float(f(1.0)["y"]), int(f(1.0)["n"])]
        print(json.dumps([values, traces.count("tracing")]))
    """
    first = run(program, "error")
    assert first[1] == 1
    assert since() == {"traces": 1, "compiles": 1, "client_traces": 0, "local_runs": 0, "hits": 0}
    assert run(program, "error", PYTHONHASHSEED="7") == [first[0], 0]
    assert since() == {"traces": 0, "compiles": 0, "client_traces": 0, "local_runs": 0, "hits": 1}


CHANGING = """
    import functools, itertools, json, random, warnings
    import jax, numpy as np, jitclient

    warnings.simplefilter("error")
    generator, numbers, dice = np.random.default_rng(5), itertools.count(1), random.Random(3)
    seen, state = [], {"calls": 0}
    OFFSET = 10.0

    @functools.lru_cache
    def offset(n): return OFFSET * n

    def draws(x): return x + float(generator.normal()) + next(numbers) + dice.random()

    def appends(x):
        seen.append(len(seen))
        return x + len(seen)

    def counts(x):
        state["calls"] += 1
        return x * state["calls"]

    def caches(x): return x + offset(2)

    def values(jit):
        jitted = [jit(function) for function in (draws, appends, counts, caches)]
        found = [[float(f(1.0)) for _ in range(3)] for f in jitted]
        after = [len(seen), state["calls"], float(generator.normal()), next(numbers), offset.cache_info().currsize]
        return [found, after]

    import sys
    print(json.dumps(values(jax.jit if "plain" in sys.argv else jitclient.jit)))
"""


def test_what_a_trace_changes_is_changed_in_each_process(own_daemon: tuple[Run, Counts]) -> None:
    run, since = own_daemon
    plain = run(CHANGING.replace('"plain" in sys.argv', "True"))
    for _ in range(2):
        assert run(CHANGING) == plain
    assert since()["local_runs"] == 0


FAULTS = {
    "a capture that fails": "import jitclient.calls.general_path as at; at.capture = fail",
    "an identity that fails": "import jitclient.calls.miss as at; at.identify = fail",
    "a look-up that fails": "import jitclient.session.programs as at; at.look_up = fail",
    "a program that cannot be made": "import jitclient.session.programs as at; at.make = fail",
    "a tree that cannot be read": "import jitclient.jaxside.tree as at; at.decode = fail",
    "a tree that cannot be built": "import jitclient.jaxside.tree as at; at.unflattener_of_sent = fail",
    "results that cannot be made": "import jitclient.calls.miss as at; at.RebuiltObjects = fail",
    "evidence that cannot be had": "import jitclient.calls.own_trace as at; at.evidence_of = fail",
    "a call that fails": "from jitclient.calls.program import Program; Program.call = fail",
    "arguments that cannot be sent": "import jitclient.calls.program as at; at.outgoing = fail",
    "a manifest that fails": "import jitclient.capture.manifest.observation as at; at.names_read = fail",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_no_fault_of_ours_reaches_the_program(fault: str, own_daemon: tuple[Run, Counts]) -> None:
    run, _ = own_daemon
    program = f"""
        import json, warnings
        import jax, numpy as np, jitclient

        def fail(*args, **kwargs):
            raise KeyError("of ours")

        import jitclient.calls.general_path, jitclient.calls.compilation
        {FAULTS[fault]}
        calls = []

        @jitclient.jit
        def f(x, y):
            calls.append(1)
            return {{"a": x - y, "b": (x, [y * 2])}}

        with warnings.catch_warnings(record=True):
            warnings.simplefilter("always")
            found = [jax.tree.map(float, f(np.float32(n), np.float32(1))) for n in (3, 4)]
        print(json.dumps([found, len(calls)]))
    """
    assert run(program) == [[{"a": n - 1, "b": [n, [2]]} for n in (3, 4)], 1]


def test_leaves_in_another_order_than_jaxs_cost_warmth_alone(own_daemon: tuple[Run, Counts]) -> None:
    """Once jax is imported, it flattens the arguments itself."""
    run, _ = own_daemon
    program = """
        import json, sys, warnings
        import numpy as np, jitclient
        import jitclient.jaxside.tree as at

        real, asked = at._flatten, []

        def reverses(tree, leaves):
            shape = real(tree, leaves)
            if type(tree) is tuple and tree[1:] == ({},):  # positional arguments and keywords
                leaves.reverse()
                asked.append("jax" in sys.modules)
            return shape

        at._flatten = reverses

        @jitclient.jit
        def f(x, y):
            return x - y

        with warnings.catch_warnings(record=True):
            warnings.simplefilter("always")
            found = float(f(np.float32(3), np.float32(1)))
        print(json.dumps([found, False in asked]))
    """
    assert run(program) == [2, True]


def test_a_capture_that_is_not_faithful_costs_warmth_alone(own_daemon: tuple[Run, Counts]) -> None:
    run, since = own_daemon
    program = """
        import json, warnings
        import jitclient

        held = {"gain": 5.0}
        import jitclient.capture as capture
        import jitclient.calls.general_path as path

        @jitclient.jit
        def f(x):
            return x * held["gain"]

        def wrong(fun, *args, **kwargs):
            held["gain"] = 7.0
            try:
                return capture.capture(fun, *args, **kwargs)
            finally:
                held["gain"] = 5.0

        path.capture = wrong
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            value = float(f(1.0))
        print(json.dumps([value, [str(warning.message) for warning in caught]]))
    """
    for _ in range(2):
        value, texts = run(program)
        assert value == 5.0
        assert since()["client_traces"] == 1
        assert all("traced in each process" in text and "7.000000e+00" in text for text in texts)


def test_what_a_program_sets_in_a_package_is_seen_in_any_order(own_daemon: tuple[Run, Counts]) -> None:
    run, since = own_daemon
    program = """
        import json, sys
        import jitclient, scaling

        if "GAIN" in __import__("os").environ:
            scaling.GAIN = float(__import__("os").environ["GAIN"])
        f = jitclient.jit(lambda x: scaling.scaled(x) + 1)
        print(json.dumps(float(f(1.0))))
    """
    for gain in ({}, {"GAIN": "5"}, {"GAIN": "6"}):
        assert run(program, "error", **gain) == float(gain.get("GAIN", 2)) + 1
    since()
    for gain in ({"GAIN": "6"}, {}, {"GAIN": "5"}, {"GAIN": "6"}):
        assert run(program, "error", **gain) == float(gain.get("GAIN", 2)) + 1
    assert since() == {"traces": 0, "compiles": 0, "client_traces": 0, "local_runs": 0, "hits": 4}


KEPT = """
    import json, jax, scaling, JIT
    from JIT import jit

    GAIN, state = 2.0, {"calls": 0}

    class Model:
        scale = 2.5

        def apply(self, x): return x * self.scale

    def of_a_global(x): return x * GAIN

    def of_a_package(x): return scaling.scaled(x)

    def counts(x):
        state["calls"] += 1
        return x * state["calls"]

    model = Model()
    found = [[float(jit(f)(1.0)) for f in (of_a_global, model.apply, of_a_package)]]
    GAIN, model.scale, scaling.GAIN = 3.0, 4.0, 5.0
    found.append([float(jit(f)(1.0)) for f in (of_a_global, model.apply, of_a_package)])
    found.append([float(jit(counts)(1.0)) for _ in range(3)])
    print(json.dumps(found))
"""


def test_a_trace_that_jax_has_from_before_counts_if_nothing_has_changed(own_daemon: tuple[Run, Counts]) -> None:
    run, since = own_daemon
    expected = [[2.0, 2.5, 2.0], [3.0, 4.0, 5.0], [1.0] * 3]
    assert run(KEPT.replace("JIT", "jitclient"), "error") == expected
    since()
    assert run(KEPT.replace("JIT", "jitclient"), "error", PYTHONHASHSEED="7") == expected
    assert since()["traces"] == 0
    plain = run(KEPT.replace(", JIT", "").replace("JIT", "jax"))
    assert (plain[0], plain[2]) == (expected[0], expected[2])
    assert plain[1][0] == 2.0, "JAX keeps the first, which jitclient need not"


def test_a_trace_of_jax_alone_says_nothing_of_what_it_read(own_daemon: tuple[Run, Counts]) -> None:
    run, since = own_daemon
    program = """
        import json, jax, scaling, jitclient

        def f(x): return scaling.scaled(x)

        scaling.GAIN = NUMBER
        jax.jit(f)(1.0)
        print(json.dumps(float(jitclient.jit(f)(1.0))))
    """
    assert [run(program.replace("NUMBER", number)) for number in ("5.0", "6.0")] == [5, 6]
    since()
    assert run(program.replace("NUMBER", "5.0"), "error") == 5
    assert since()["hits"] == 1


def test_a_child_forked_from_a_process_with_jax_traces_nothing(own_daemon: tuple[Run, Counts]) -> None:
    run, since = own_daemon
    program = """
        import json, os, jax, jitclient

        traced = []

        @jitclient.jit
        def f(x): return x * 2.0

        @jitclient.jit
        def of_child(x):
            traced.append(1)
            return x * 3.0

        first = float(f(1.0))
        reading, writing = os.pipe()
        if os.fork() == 0:
            os.write(writing, json.dumps([float(f(2.0)), float(of_child(1.0)), len(traced)]).encode())
            os._exit(0)
        os.wait()
        print(json.dumps([first, json.loads(os.read(reading, 100))]))
    """
    assert run(program, "error") == [2.0, [4.0, 3.0, 0]]
    assert since()["traces"] == 2
