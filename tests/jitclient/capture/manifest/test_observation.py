"""Observation of a trace: its reads, its changes, and that observing neither fails nor disturbs anything."""

import concurrent.futures
import cProfile
import gc
import importlib
import runpy
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jitclient.capture.manifest import Reads, covers, observed, state_of, trees
from jitclient.capture.manifest.places import CHANGED_PLACES
from jitclient.capture.user_code import installed
from jitclient.capture.user_code.installed import package_of

Write = Callable[[str], Any]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes a package of this text, and imports it."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)

    def write(text: str) -> Any:
        (folder / "mf_one.py").write_text(textwrap.dedent(text))
        return __import__("mf_one")

    yield write
    sys.modules.pop("mf_one", None)
    for function in (installed.is_user_module, installed.package_of):
        function.cache_clear()


def reads_of(function: Callable[..., Any], *arguments: Any) -> Reads:
    with observed() as observation:
        function(*arguments)
    return observation.reads()


def test_reads_are_names_and_the_state_under_them(package: Write) -> None:
    one = package("GAIN = 2.0\nOTHER = 3.0\ndef op(x): return x * GAIN")
    reads = reads_of(one.op, 1.0)
    assert reads.names == ("mf_one:GAIN", "mf_one:__modules__", "mf_one:op")
    assert reads.state == state_of(reads.names)
    one.OTHER = 4.0
    assert reads.state == state_of(reads.names)
    one.GAIN = 4.0
    assert reads.state[0] != state_of(reads.names)[0]


@pytest.mark.parametrize("by", ["callback", "finalizer"])
def test_what_runs_while_garbage_is_collected_reads_nothing(package: Write, by: str) -> None:
    one = package(
        "GAIN, seen = 2.0, []\n"
        "def op(x): return x * GAIN\n"
        "def callback(phase, info): seen.append(op(len(seen)))\n"
        "class Held:\n"
        "    def __del__(self): callback('', {})\n"
    )

    def function() -> None:
        if by == "finalizer":
            held = one.Held()
            held.itself = held
            del held
        gc.collect()

    if by == "callback":
        gc.callbacks.append(one.callback)
    try:
        assert [name for name in reads_of(function).names if "op" in name or "GAIN" in name] == []
        assert "mf_one:GAIN" in reads_of(lambda: (function(), one.op(1.0))).names
    finally:
        if by == "callback":
            gc.callbacks.remove(one.callback)
    assert one.seen


def test_classes_of_ours_in_a_registry_are_no_state(package: Write) -> None:
    from jitclient.nnx.graph import NodeLeaves

    one = package("REGISTRY = {int: 1}\ndef op(x): return REGISTRY[type(x)]")
    reads = reads_of(one.op, 1)
    one.REGISTRY[NodeLeaves] = 2
    assert state_of(reads.names) == reads.state
    one.REGISTRY[float] = 2
    assert state_of(reads.names) != reads.state


def test_a_collection_that_begins_at_any_moment_hides_nothing(package: Write) -> None:
    """Python 3.12 and later collect between two instructions, and so between the first callback and the second."""
    one = package("GAIN = 2.0\ndef op(x): return x * GAIN")
    kept = gc.get_threshold()
    gc.set_threshold(1)
    try:
        found = [reads_of(one.op, 1.0) for _ in range(20)]
    finally:
        gc.set_threshold(*kept)
    assert all("mf_one:GAIN" in reads.names for reads in found)


def test_no_callback_of_the_collector_is_read_while_several_threads_trace(package: Write) -> None:
    """The one of hypothesis sums up the time of collections: a trace that counted as its reader would not repeat."""
    one = package(
        "GAIN, total = 2.0, 0\n"
        "def op(x): return x * GAIN\n"
        "def callback(phase, info):\n"
        "    global total\n"
        "    total += 1\n"
    )
    threshold, interval = gc.get_threshold(), sys.getswitchinterval()
    gc.callbacks.insert(0, one.callback)
    reads_of(one.op, 1.0)  # from now on, the order of the callbacks is right
    gc.set_threshold(5)
    sys.setswitchinterval(1e-6)
    try:
        with concurrent.futures.ThreadPoolExecutor(2) as threads:
            runs = threads.map(lambda _: [reads_of(one.op, 1.0) for _ in range(500)], range(2))
            found = [reads for run in runs for reads in run]
    finally:
        sys.setswitchinterval(interval)
        gc.set_threshold(*threshold)
        gc.callbacks.remove(one.callback)
    assert one.total
    assert {reads.unobserved_reason for reads in found} == {""}
    assert {reads.names for reads in found} == {("mf_one:GAIN", "mf_one:__modules__", "mf_one:op")}


def test_a_collection_whose_end_nobody_reports_makes_the_trace_unobserved(package: Write) -> None:
    one = package("GAIN = 2.0\ndef op(x): return x * GAIN")
    assert reads_of(one.op, 1.0).unobserved_reason == ""
    kept = list(gc.callbacks)

    def take_away(phase: str, info: dict[str, int]) -> None:
        gc.callbacks.clear()

    def function() -> None:
        gc.callbacks.append(take_away)
        gc.collect()
        one.op(1.0)

    try:
        assert "end of a collection" in reads_of(function).unobserved_reason
    finally:
        gc.callbacks[:] = kept
    assert "mf_one:GAIN" in reads_of(one.op, 1.0).names


def test_jax_alone_reads_nothing() -> None:
    import jax.numpy as jnp

    def function() -> Any:
        return jnp.sin(jnp.ones(3)) + 1

    function()  # imports what it needs, with the help of the finders of this process
    reads = reads_of(function)
    assert [name for name in reads.names if not name.startswith(__name__)] == []
    assert (reads.nonrepeatable, reads.unobserved_reason) == ("", "")


def test_a_trace_that_jax_keeps_counts_where_it_is_used_again(package: Write) -> None:
    import jax

    one = package(
        "import jax\nGAIN = 2.0\nclass Loop:\n    gain = 1.0\n    def body(self, c, x): return c * self.gain, x\n"
        "    def run(self, x): return jax.lax.scan(self.body, x, None, length=2)[0]\nloop = Loop()\n"
        "def body(c, x): return c * GAIN, x\ndef op(x): return jax.lax.scan(body, x, None, length=2)[0] + loop.run(x)"
    )
    first = reads_of(lambda: jax.make_jaxpr(lambda x: one.op(x))(1.0))
    second = reads_of(lambda: jax.make_jaxpr(lambda x: one.op(x) + 1)(1.0))
    assert {"mf_one:GAIN", "mf_one:Loop.gain"} <= set(first.names) & set(second.names)


DRAWN = {
    "numpy's generator": "import numpy as np\nd = np.random.default_rng(0)\ndef op(): return d.normal()",
    "numpy's old generator": "import numpy as np\nd = np.random.RandomState(0)\ndef op(): return d.normal()",
    "Python's generator": "import random\nd = random.Random(0)\ndef op(): return d.random()",
    "iterator": "d = iter([1.0, 2.0, 3.0])\ndef op(): return next(d)",
    "generator": "def g():\n    for i in range(9):\n        yield i\nd = g()\ndef op(): return next(d)",
    "cycle": "import itertools\nd = itertools.cycle([1, 2])\nnext(d), next(d)\ndef op(): return next(d)",
    "too large to be compared": "d = [[i] for i in range(30000)]\ndef op(): return d[-1]",
    "address": "d = [repr(object())]\ndef op(): return d",
    "setting": "d = 1.0\ndef op():\n    global d\n    d = d * 2",
    "setting in a dictionary": "d = {'mode': 'a'}\ndef op(): d['mode'] += 'b'",
    "stack": "d = [1.0, 2.0, 3.0]\ndef op(): return d.pop()",
}


@pytest.mark.parametrize("text", DRAWN.values(), ids=DRAWN)
def test_what_later_traces_depend_on_is_drawn(package: Write, text: str) -> None:
    one = package(text)
    if text.startswith("def g"):
        next(one.d)
    assert reads_of(one.op).nonrepeatable == "mf_one:d"


LEFT = {
    "pushed before it was read by another name": "d = []\ndef op():\n    push()\n    look(), d.pop()\n"
    "def push(): d.append(1.0)\nlook = d.__len__\n",
    "a field of an object": "class C: pass\nd = C()\nd.now = None\nother = [d]\n"
    "def op():\n    enter()\n    look(), leave()\n"
    "def enter(): d.now = 1.0\ndef leave(): d.now = None\ndef look(): return other[0].now\n",
}


@pytest.mark.parametrize("text", LEFT.values(), ids=LEFT)
def test_what_a_trace_enters_and_leaves_is_as_it_was(package: Write, text: str) -> None:
    one = package(text)
    reads = reads_of(one.op)
    assert reads.nonrepeatable == ""
    assert reads.state == state_of(reads.names)


def test_what_each_thread_makes_when_it_first_needs_it_counts_as_absent(package: Write) -> None:
    one = package(
        "import threading\nd = threading.local()\ndef op():\n    push()\n    d.stack.pop()\n"
        "def push():\n    try: stack = d.stack\n    except AttributeError: stack = d.stack = []\n    stack.append(1)\n"
    )
    before = state_of(["mf_one:d.stack"])
    for _ in range(2):
        reads = reads_of(one.op)
        assert reads.nonrepeatable == ""
        assert reads.state[reads.names.index("mf_one:d.stack")] == before[0]
    one.d.stack.append(1)
    assert state_of(["mf_one:d.stack"]) != before


GREW = {
    "counter": "d = 0\ndef op():\n    global d\n    d += 1",
    "count": "import itertools\nd = itertools.count()\ndef op(): return next(d)",
    "counter of an object": "class C: pass\nd = C()\nd.n = 3\ndef op(): bump(d)\ndef bump(o): o.n += 1",
    "dictionary": "d = {}\ndef op(): d[len(d)] = object()",
    "set": "d = set()\ndef op(): d.add(len(d))",
    "log": "d = []\ndef op(): d.append('traced')",
    "attribute of a function": "def d(): pass\nd.calls = 0\ndef op(): d.calls += 1",
    "attribute of a class": "class d:\n    made = 0\ndef op(): d.made += 1",
}


@pytest.mark.parametrize("text", GREW.values(), ids=GREW)
def test_counters_and_caches_do_not_count(package: Write, text: str) -> None:
    one = package(text)
    first = reads_of(one.op)
    assert not first.nonrepeatable
    assert any(name.startswith("mf_one:d") and CHANGED_PLACES in name for name in first.names)
    assert reads_of(one.op) == first


def test_settings_beside_a_counter_count(package: Write) -> None:
    one = package("class C: pass\nd = C()\nd.n, d.gain = 0, 2.0\ndef op(): return bump(d)\ndef bump(o): o.n += 1")
    reads = reads_of(one.op)
    assert reads.state == state_of(reads.names)
    one.d.gain = 3.0
    assert reads.state != state_of(reads.names)


BESIDE = {
    "a dictionary beside a cache": (
        "d.held, d.options = {}, {'gain': 2.0}",
        "o.held[len(o.held)] = object()",
        "d.options['gain'] = 3.0",
    ),
    "a list beside a log": ("d.log, d.layers = [], [1.0]", "o.log.append('traced')", "d.layers.append(2.0)"),
    "what the program adds to a dictionary that a trace fills": (
        "d.options = {}",
        "o.options.setdefault('gain', 2.0)",
        "d.options['gain'] = 3.0",
    ),
    "what a trace makes when it first needs it": (
        "d.config = None",
        "o.config = o.config or Config()",
        "d.config = Config(3.0)",
    ),
}


@pytest.mark.parametrize(("held", "grows", "changes"), BESIDE.values(), ids=BESIDE)
def test_all_beside_what_a_trace_changes_counts(package: Write, held: str, grows: str, changes: str) -> None:
    one = package(f"""
        class Config:
            def __init__(self, gain=2.0): self.gain = gain
        class C: pass
        def op(): return grow(d)
        def grow(o): {grows}
        def begin():
            global d
            d = C()
            {held}
        begin()
    """)
    reads = reads_of(one.op)
    assert any(CHANGED_PLACES in name for name in reads.names)
    one.begin()  # as in the next process, where nothing is traced
    assert reads.state == state_of(reads.names)
    exec(changes, vars(one))
    assert reads.state != state_of(reads.names)


FILLED = {
    "cache of a generic function": "import functools\n@functools.singledispatch\ndef d(x=1.0): return x\n"
    "def op(x=1.0): return d(x), d.dispatch(type(x))\ndef change(): d.register(int, lambda x: -x)",
    "registration of a class with JAX at its first instance": "import jax\nfrom jax._src.tree_util import _registry\n"
    "class C:\n    def tree_flatten(self): return (), None\n    @classmethod\n"
    "    def tree_unflatten(cls, aux, children): return cls()\n"
    "def begin():\n    if C not in _registry: jax.tree_util.register_pytree_node_class(C)\n"
    "def op(): begin(), look()\ndef look(): return len(_registry)\n"
    "def change(): jax.tree_util.register_static(type('D', (), {'__module__': __name__}))",
    "cache of weak containers": "import weakref\nd, held = weakref.WeakKeyDictionary(), []\nclass C: pass\n"
    "def op():\n    held.append(C())\n    d[held[-1]] = weakref.WeakSet()\ndef change(): d[C] = 1.0",
}


@pytest.mark.parametrize("text", FILLED.values(), ids=FILLED)
def test_what_every_trace_fills_is_no_state(package: Write, text: str) -> None:
    one = package(text)
    reads = reads_of(one.op)
    assert (reads.nonrepeatable, reads.unobserved_reason) == ("", "")
    assert reads_of(one.op) == reads
    assert reads.state == state_of(reads.names)
    one.change()
    assert reads.state != state_of(reads.names)


def test_state_that_a_trace_changes_before_reading_counts_as_before(package: Write) -> None:
    one = package(
        "class C:\n    def fill(self): self.d['g'] = [1.0]\nc = C()\nc.d = d = {}\n"
        "def op(o): o.fill(), look()\ndef look(): return d"
    )
    made = reads_of(lambda: one.op(one.c))
    one.d.clear()
    with observed(made.names) as observation:
        one.op(vars(one)["c"])
    again = observation.reads()
    one.d.clear()
    assert state_of(again.names) == again.state
    one.d["other"] = [1.0]
    assert state_of(again.names) != again.state


def test_the_state_is_that_of_before(package: Write) -> None:
    one = package("d = None\ndef op():\n    global d\n    d = d or object()")
    before = state_of(["mf_one:d"])
    reads = reads_of(one.op)
    assert reads.state[reads.names.index("mf_one:d" + CHANGED_PLACES)] == before[0]


def test_an_inner_observation_has_its_own_reads_and_the_outer_has_all(package: Write) -> None:
    one = package("A = 1.0\nB = 2.0\ndef a(): return A\ndef b(): return B")
    with observed() as outer:
        one.a()
        one.b()
        with observed() as inner:
            one.b()
        one.a()
    assert "mf_one:B" in inner.reads().names
    assert "mf_one:A" not in inner.reads().names
    assert {"mf_one:A", "mf_one:B"} <= set(outer.reads().names)


def test_other_threads_are_not_observed(package: Write) -> None:
    one = package("A = 1.0\nB = 2.0\ndef a(): return A\ndef b(): return B")
    found: dict[str, Reads] = {}
    both = threading.Barrier(2, timeout=60)

    def trace(name: str) -> None:
        with observed() as observation:
            both.wait()
            getattr(one, name)()
            both.wait()
        found[name] = observation.reads()

    threads = [threading.Thread(target=trace, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {"mf_one:A"} == set(found["a"].names) & {"mf_one:A", "mf_one:B"}
    assert {"mf_one:B"} == set(found["b"].names) & {"mf_one:A", "mf_one:B"}


def hooks() -> tuple[Any, ...]:
    monitoring = getattr(sys, "monitoring", None)
    return sys.gettrace(), sys.getprofile(), *([monitoring.get_tool(each) for each in range(6)] if monitoring else [])


def test_an_exception_passes_and_no_hook_stays(package: Write) -> None:
    one = package("GAIN = 2.0\ndef op(x): return x / (GAIN - 2)")
    before = hooks()
    with pytest.raises(ZeroDivisionError), observed() as observation:
        one.op(1.0)
    assert hooks() == before
    assert "mf_one:GAIN" in observation.reads().names


@pytest.fixture
def no_hooks() -> Iterator[None]:
    """Remove the hooks, and restore those of, say, coverage afterwards."""
    trace, profile = sys.gettrace(), sys.getprofile()
    sys.settrace(None)
    sys.setprofile(None)
    yield
    sys.settrace(trace)
    sys.setprofile(profile)


@pytest.mark.usefixtures("no_hooks")
def test_under_a_debugger_and_under_a_profiler(package: Write) -> None:
    one = package("GAIN = 2.0\ndef op(x): return x * GAIN")
    heard: list[str] = []

    def debugger(frame: Any, event: str, argument: object) -> None:
        heard.append(frame.f_code.co_name)

    sys.settrace(debugger)
    assert "mf_one:GAIN" in reads_of(one.op, 1.0).names
    assert sys.gettrace() is debugger
    assert "op" in heard
    sys.settrace(None)
    with cProfile.Profile() as profiler:
        assert "mf_one:GAIN" in reads_of(one.op, 1.0).names
    assert any("mf_one" in str(entry.code) for entry in profiler.getstats())


@pytest.mark.usefixtures("no_hooks")
@pytest.mark.skipif(sys.version_info >= (3, 12), reason="there, sys.monitoring has a place for each")
def test_under_both_it_says_that_it_saw_nothing(package: Write) -> None:
    one = package("GAIN = 2.0\ndef op(x): return x * GAIN")
    sys.settrace(lambda *event: None)
    with cProfile.Profile():
        assert reads_of(one.op, 1.0) == Reads(unobserved_reason="a debugger and a profiler are active")


@pytest.mark.usefixtures("no_hooks")
@pytest.mark.skipif(sys.version_info >= (3, 12), reason="there, debuggers take no hook away")
def test_a_debugger_that_begins_in_a_trace_keeps_its_hook(package: Write) -> None:
    package("")
    debugger = lambda *event: None
    reads = reads_of(lambda: sys.settrace(debugger))
    assert sys.gettrace() is debugger
    assert reads.unobserved_reason


def test_a_debugger_runs_where_its_functions_do_and_not_where_it_is_imported(package: Write) -> None:
    package("")
    imported = runpy.run_module("bdb")
    assert not reads_of(lambda: runpy.run_module("bdb")).unobserved_reason
    assert reads_of(imported["Bdb"]).unobserved_reason == "a debugger was started during the trace"


def test_a_class_is_read_while_it_is_made(package: Write) -> None:
    one = package("""
    class Meta(type):
        def mro(cls):
            global MADE
            MADE = cls
            return ordered(cls)

    def ordered(cls):
        assert MADE.__mro__ is None
        return type.mro(cls)

    def op(x):
        return Meta("Made", (), {"GAIN": 2.0}).GAIN * x
    """)
    reads = reads_of(one.op, 1.0)
    assert not reads.unobserved_reason
    assert "mf_one:MADE" in str(reads.names)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="there is no sys.monitoring")
def test_when_other_tools_have_taken_all_it_says_so(package: Write) -> None:
    monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
    for tool in (3, 4):
        monitoring.use_tool_id(tool, "another")
    try:
        assert reads_of(lambda: None).unobserved_reason
    finally:
        for tool in (3, 4):
            monitoring.free_tool_id(tool)


HOSTILE = """
class Hostile:
    gain = 2.0
    def __getattribute__(self, name): raise SystemExit(name)
    def __getattr__(self, name): raise SystemExit(name)
    def __eq__(self, other): raise SystemExit("eq")
    def __hash__(self): raise SystemExit("hash")
    def __repr__(self): raise SystemExit("repr")
    def __len__(self): raise SystemExit("len")
    def __iter__(self): raise SystemExit("iter")
    @property
    def __class__(self): raise SystemExit("class")
class HostileDict(dict):
    def items(self): raise SystemExit("items")
    def __iter__(self): raise SystemExit("iter")
class Meta(type):
    def __getattribute__(cls, name): raise SystemExit(name)
class OfMeta(metaclass=Meta):
    pass
held = [Hostile(), HostileDict(a=1), OfMeta]
config = Hostile()
def op(): return held, config, OfMeta
"""


def test_no_code_of_a_package_runs_to_describe_its_data(package: Write) -> None:
    reads = reads_of(package(HOSTILE).op)
    assert not reads.unobserved_reason
    assert reads.state == state_of(reads.names)
    assert {"mf_one:held", "mf_one:config", "mf_one:OfMeta"} <= set(reads.names)


def test_a_failure_of_ours_is_no_exception(package: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    one = package("GAIN = 2.0\ndef op(x): return x * GAIN")

    def fail(*arguments: Any) -> Any:
        raise ValueError("ours")

    with monkeypatch.context() as patch:
        patch.setattr("jitclient.capture.manifest.observation.names_read", fail)
        assert reads_of(one.op, 1.0).unobserved_reason == "the trace could not be observed: ValueError: ours"
    recorder = "observation.GarbageRecorder"
    for place in ("hooks.collects_garbage", f"{recorder}.start", f"{recorder}.stop", "trees._walked"):
        with monkeypatch.context() as patch:
            patch.setattr(f"jitclient.capture.manifest.{place}", fail)
            assert "ours" in reads_of(one.op, 1.0).unobserved_reason
    assert reads_of(one.op, 1.0).unobserved_reason == ""


def test_a_program_that_clears_the_callbacks_of_the_collector_goes_on(package: Write) -> None:
    one = package("GAIN = 2.0\ndef op(x): return x * GAIN")
    kept = list(gc.callbacks)
    try:
        assert "mf_one:GAIN" in reads_of(lambda: (gc.callbacks.clear(), one.op(1.0))).names
    finally:
        gc.callbacks.extend(kept)


def test_what_is_not_there_is_absent_and_not_equal_to_anything(package: Write) -> None:
    package("GAIN = None")
    absent, of_module, none = state_of(["mf_one:MISSING", "mf_nowhere:GAIN", "mf_one:GAIN"])
    assert absent == of_module != none


def test_a_module_that_fails_to_be_imported_is_absent(package: Write) -> None:
    package("")
    sys.modules.pop("mf_one")
    file = next(Path(each) / "mf_one.py" for each in sys.path if (Path(each) / "mf_one.py").exists())
    file.write_text("raise SystemExit(3)")
    assert state_of(["mf_one:GAIN"]) == state_of(["mf_nowhere:GAIN"])


def test_in_a_namespace_that_a_package_shares_the_file_of_a_module_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, text in (("mine", "GAIN = 2.0\ndef op(x): return x * GAIN"), ("site-packages", "OTHER = 1")):
        (tmp_path / folder / "mf_space").mkdir(parents=True)
        (tmp_path / folder / "mf_space" / f"{folder[:4]}.py").write_text(text)
        monkeypatch.syspath_prepend(tmp_path / folder)  # the package's comes first then
    module = importlib.import_module("mf_space.mine")
    try:
        assert package_of("mf_space") == "mf_space"
        assert reads_of(module.op, 1.0).names == ()
    finally:
        for name in ("mf_space.mine", "mf_space"):
            sys.modules.pop(name, None)
        for function in (installed.is_user_module, installed.package_of):
            function.cache_clear()


def test_a_look_up_imports_what_the_trace_imported_and_nothing_else(package: Write, tmp_path: Path) -> None:
    (tmp_path / "site-packages" / "mf_late.py").write_text("GAIN = 2.0")
    one = package("def op():\n    import mf_late\n    return mf_late.GAIN")
    first = reads_of(one.op)
    again = reads_of(one.op)
    assert "+mf_late:GAIN" in first.names
    assert "mf_late:GAIN" in again.names  # it was loaded before
    del sys.modules["mf_late"]
    assert state_of(again.names) != again.state
    assert "mf_late" not in sys.modules
    assert state_of(first.names) == first.state
    assert sys.modules.pop("mf_late").GAIN == 2.0


def test_a_manifest_has_what_is_within_what_it_names() -> None:
    names = ("one:gain", "one.part:Layer~4.1", "one:options.mode")
    assert covers(names, "one", "gain")
    assert covers(names, "one.part", "Layer.apply")
    assert not covers(names, "one", "options")
    assert not covers(names, "one", "Layer.apply")


def test_an_object_under_many_names_is_described_once(package: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"d{n}" for n in range(50)]
    one = package(
        f"shared = [[n] for n in range(1000)]\n{' = '.join(names)} = shared\ndef op(): return {', '.join(names)}"
    )
    walks: list[Any] = []
    walk = trees._TreeWalk.tree

    def counted(self: Any, value: Any) -> Any:
        walks.append(value)
        return walk(self, value)

    monkeypatch.setattr(trees._TreeWalk, "tree", counted)
    reads = reads_of(one.op)
    assert {f"mf_one:{name}" for name in names} <= set(reads.names)
    assert sum(value is one.shared for value in walks) == 2  # before and after the trace
    assert state_of(reads.names) == reads.state
    assert sum(value is one.shared for value in walks) == 3


def test_clock_that_a_package_reads_is_read_by_each_process(package: Write) -> None:
    one = package(
        "from datetime import datetime\ndef op(): return datetime.now().minute\ndef other(): return datetime.min"
    )
    assert reads_of(one.op).nonrepeatable == "datetime.datetime.now"
    assert reads_of(one.other).nonrepeatable == ""


def test_packages_with_too_much_state_are_not_observed(package: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    one = package("a, b, c = ([[n] for n in range(1000)] for _ in 'abc')\ndef op(): return a, b, c")
    assert reads_of(one.op).unobserved_reason == ""
    monkeypatch.setattr("jitclient.capture.manifest.observation._MAX_PARTS", 2000)
    assert "more than 2000 values" in reads_of(one.op).unobserved_reason
