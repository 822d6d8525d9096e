"""`explain` says whether a call would find its program and what differs, and makes nothing; misses can say it too."""

import dataclasses
import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jitclient

UM = """

def scale(x):
    return x * 2
"""

PROGRAM = """
    import json, sys, numpy as np, jitclient, um
    {imports}

    LR = 0.001

    @jitclient.jit
    def explained(params, x):
        return params["w"] @ um.scale(x).T * LR

    params, x = {{"w": np.ones((4, 8), np.float32)}}, np.ones((32, 8), np.float32)
    if sys.argv[1:] == ["call"]:
        explained(params, x)
    found = jitclient.explain(explained, params, x)
    loaded = "jax" in sys.modules
    print(json.dumps([found.hit, found.level, list(map(str, found.differences)), str(found), found.nearest, loaded]))
"""


@pytest.fixture
def explained(tmp_path: Path, run_script: Callable[..., Any]) -> Callable[..., Any]:
    """Runs the program with edits: (file, old, new); returns what it says."""

    def run(*edits: tuple[str, str], um: tuple[str, str] = ("", ""), call: bool = False, imports: str = "") -> Any:
        (tmp_path / "um.py").write_text(UM.replace(*um))
        program = PROGRAM.format(imports=imports)
        for old, new in edits:
            assert old in program
            program = program.replace(old, new)
        return run_script(program, *(["call"] if call else []))

    return run


COUNTED = ("calls", "hits", "misses", "traces", "compiles", "captures_loaded", "entries", "client_traces")


def test_it_says_which_part_differs_and_makes_nothing(
    daemon: str, explained: Callable[..., Any], counts: Callable[..., dict[str, Any]]
) -> None:
    hit, level, _, text, *_ = explained()
    assert (hit, level) == (False, None)
    assert text == "explained(f32[4,8], f32[32,8]): miss\n  no similar program is cached"
    hit, level, differences, text, _, loaded = explained(call=True)
    assert (hit, level, differences) == (True, "L0", [])
    assert loaded, "the call had to make the program, and so to trace it here, too"
    assert text == "explained(f32[4,8], f32[32,8]): hit (L0: this process has called it)"

    before = counts()
    hit, level, differences, text, _, loaded = explained()
    assert (hit, level, differences, loaded) == (True, "L1", [], False)
    assert re.fullmatch(r"explained\(.*\): hit \(L1: the daemon has it, made in .* m?s\)", text)

    assert explained(um=("x * 2", "x * 3"))[2] == ["helper um.scale: code changed (um.py:4)"]
    assert explained(um=("\n\ndef", "# moved\n\n\n\ndef"))[0]
    assert explained(("LR = 0.001", "LR = 0.002"))[2] == ["global LR: 0.001 -> 0.002"]
    assert explained(("* LR", "+ LR"))[2] == ["code of explained: changed (program.py:9)"]
    assert explained(imports="import jax; jax.config.update('jax_enable_x64', True)")[2] == [
        "jax_enable_x64: False -> True"
    ]
    hit, level, differences, text, nearest, _ = explained(("(32, 8)", "(33, 8)"))
    assert (hit, level, differences) == (False, None, ["argument x: float32[32,8] -> float32[33,8]"])
    assert len(nearest) == 32
    first, second = text.splitlines()
    assert re.fullmatch(r"explained\(f32\[4,8\], f32\[33,8\]\): miss, about .* m?s to make", first)
    assert second == "  argument x: float32[32,8] -> float32[33,8]"
    after = counts()
    assert {name: after[name] for name in COUNTED} == {name: before[name] for name in COUNTED}


class Config:
    def __init__(self, depth: int) -> None:
        self.depth = depth


def test_arguments_statics_options_and_donations_have_their_names(daemon: str) -> None:
    def named(x: Any, n: Any, more: Any = None, *, old: Any = None) -> Any:
        return x * (n.depth if isinstance(n, Config) else n)

    def differences(remote: Any, *args: Any, **kwargs: Any) -> list[str]:
        found = jitclient.explain(remote, *args, **kwargs)
        assert not found.hit
        assert found.cost_seconds > 0
        return list(map(str, found.differences))

    x = np.ones(3, np.float32)
    remote = jitclient.jit(named, static_argnums=1)
    remote(x, 2)
    assert differences(remote, x, 3) == ["static n: 2 -> 3"]
    assert differences(remote, x, 2, [x]) == ["argument more[0]: new, float32[3]"]
    assert differences(remote, 1.5, 2) == ["argument x: float32[3] -> float32[], weakly typed"]
    kept = jitclient.jit(named, static_argnums=1, keep_unused=True)
    assert differences(kept, x, 2) == ["option keep_unused: new, True"]
    donating = jitclient.jit(named, static_argnums=1, donate_argnums=0)
    assert differences(donating, x, 2) == ["donated arguments: none -> x"]
    remote(x, Config(2))
    assert differences(remote, x, Config(5)) == ["static n.depth: 2 -> 5"]


def test_bare_functions_and_methods_are_explained_as_they_would_be_jitted(daemon: str) -> None:
    def never_traced(x: Any) -> Any:
        return x + 1

    class Model:
        @jitclient.jit
        def of_class(x: Any) -> Any:
            return x + 2

    x = np.ones(3, np.float32)
    assert jitclient.explain(never_traced, x) == jitclient.Explanation("never_traced(f32[3])", hit=False)
    jitclient.jit(never_traced)(x)
    assert jitclient.explain(never_traced, x).level == "L1"
    Model.of_class(x)
    assert jitclient.explain(Model.of_class, x).level == "L0"
    with pytest.raises(TypeError, match=r"Error interpreting argument .*Model.* at path x"):
        jitclient.explain(Model().of_class)


def test_without_a_daemon_it_says_so_and_starts_none(short_path: Path, run_script: Callable[..., Any]) -> None:
    program = """
        import json, numpy as np, jitclient
        found = jitclient.explain(lambda x: x, np.ones(3))
        print(json.dumps([found.hit, found.reason]))
    """
    address = f"unix:{short_path}/d.sock"
    hit, reason = run_script(program, env={"JITSERVER_ADDRESS": address, "JITSERVER_AUTOSTART": "1"})
    assert not hit
    assert f"no daemon answers at {address}" in reason
    assert list(short_path.iterdir()) == []


AMBIENT = """
    import configparser, json, os, sys, jax, numpy as np, jitclient

    @jitclient.jit
    def reads(x):
        return x * float(os.environ["SCALE"])

    @jitclient.jit
    def loads(x):
        return x * len(configparser.ConfigParser().read("{path}"))

    x = np.ones(3, np.float32)
    before = [jitclient.explain(f, x) for f in (reads, loads)]
    if sys.argv[1:] == ["call"]:
        reads(x), loads(x)
    after = [jitclient.explain(f, x) for f in (reads, loads)]
    print(json.dumps([[e.hit, e.level, e.reason] for e in before + after]))
"""


def test_ambient_functions_have_a_reason(own: Any) -> None:
    file = own.folder / "file"
    file.write_text("[section]")
    program = AMBIENT.format(path=file)
    with own.serving():
        reads, _, *after = own.run(program, "call", SCALE="2")
        assert reads[:2] == [False, None]
        assert reads[2].startswith("traced in the client: ")
        assert "os.environ" in reads[2]
        assert after == [[True, "L0", None]] * 2
        _, loads, *_ = own.run(program, SCALE="2")
        assert loads[:2] == [False, None], "the daemon remembers that it tried"
        assert loads[2].startswith("traced in the client: ")
        assert str(file) in loads[2]


def test_inside_a_trace_it_says_so(daemon: str) -> None:
    import jax

    found = []

    def outer(x: Any) -> Any:
        found.append(jitclient.explain(lambda x: x, x))
        return x

    jax.eval_shape(outer, np.ones(3))
    with jax.disable_jit():
        found.append(jitclient.explain(lambda x: x, np.ones(3)))
    assert [str(each) for each in found] == [
        "<lambda>: becomes part of the program that is being traced",
        "<lambda>: runs in this process: jit is disabled",
    ]


def test_static_fields_of_the_users_trees_are_told(daemon: str) -> None:
    import jax

    @functools.partial(jax.tree_util.register_dataclass, data_fields=["w"], meta_fields=["n"])
    @dataclasses.dataclass
    class State:
        w: Any
        n: int

    @jitclient.jit
    def of_state(state: Any) -> Any:
        return state.w * state.n

    of_state(State(np.ones(3), 3))
    [difference] = jitclient.explain(of_state, State(np.ones(3), 4)).differences
    assert str(difference) == "structure of the arguments: ((object(*; (3)),), {}) -> ((object(*; (4)),), {})"


def test_an_option_that_cannot_travel_has_a_reason_too(daemon: str) -> None:
    import jax
    from jax.experimental.layout import Format, Layout

    rows = Format(Layout((0,)), jax.sharding.SingleDeviceSharding(jax.devices()[0]))
    found = jitclient.explain(jitclient.jit(lambda x: x, in_shardings=rows), np.ones(3))
    assert str(found).startswith("<lambda>(f32[3]): traced in the client: a Format cannot be sent")


def test_shardings_are_told(daemon: str) -> None:
    import jax

    def placed(x: Any) -> Any:
        return x

    mesh = jax.make_mesh((1,), ("x",))
    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    x = np.ones(3, np.float32)
    jitclient.jit(placed)(x)
    [difference] = jitclient.explain(jitclient.jit(placed, out_shardings=rows), x).differences
    assert "out_shardings" in str(difference)
    [difference] = jitclient.explain(jitclient.jit(placed), jax.device_put(x, rows)).differences
    assert str(difference) == "argument x: float32[3] -> float32[3] over ('x',) of x=1"
    with jax.set_mesh(mesh):
        [difference] = jitclient.explain(jitclient.jit(placed), x).differences
    assert "mesh" in str(difference)


SAYS = """
    import contextlib, io, json, numpy as np, jitclient

    @jitclient.jit
    def says(x):
        return x + 1

    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        for rows in (32, 33, 33, 32):
            says(np.ones((rows, 8), np.float32))
    print(json.dumps(said.getvalue().splitlines()))
"""


def test_the_setting_makes_every_miss_say_its_cause_and_price(daemon: str, run_script: Callable[..., Any]) -> None:
    assert run_script(SAYS.replace("says", "silent")) == []
    first, second = run_script(SAYS, env={"JITSERVER_REPORT": "lines"})
    cause = re.escape("same code as silent (program.py:4)")
    assert re.fullmatch(rf"jitserver: says\(f32\[32,8\]\)  compiled in .* m?s \({cause}\)", first)
    cause = re.escape("argument x: float32[32,8] -> float32[33,8]")
    assert re.fullmatch(rf"jitserver: says\(f32\[33,8\]\)  compiled in .* m?s \({cause}\)", second)
    found = run_script(SAYS, env={"JITSERVER_REPORT": "lines"})
    assert [line.partition("  found in ")[0] for line in found] == [line.partition("  ")[0] for line in (first, second)]
    assert run_script(SAYS, env={"JITSERVER_REPORT": "off"}) == []


DECLARES = """
    import contextlib, io, json, os, numpy as np, jitclient
    from pathlib import Path

    SIZES = {sizes}

    @jitclient.jit(deps=[Path("weights.json"), "SCALE", "SCALE2", SIZES, 7])
    def declares(x):
        return x * len(Path("weights.json").read_bytes()) * len(os.environ.get("SCALE", ""))

    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        found = jitclient.explain(declares, np.ones(3, np.float32))
        {call}
    print(json.dumps([list(map(str, found.differences)), said.getvalue().splitlines()]))
"""


def test_a_declared_input_that_changed_has_its_name(own: Any, cli: Callable[..., Any], tmp_path: Path) -> None:
    def differences(sizes: str = "{'a': 1}", call: str = "", **changed: str) -> Any:
        env = {"SCALE": "2", "JITSERVER_REPORT": "lines", **changed}
        return own.run(DECLARES.format(sizes=sizes, call=call), **env)

    weights = tmp_path / "weights.json"
    weights.write_text("1")
    with own.serving():
        _, [line] = differences(call="declares(np.ones(3, np.float32))")
        took = "traced in this process in .* m?s, compiled in .* m?s"
        assert re.fullmatch(rf"jitserver: declares\(f32\[3\]\)  {took} \(no similar program is cached\)", line)
        assert differences() == [[], []]
        assert differences(SCALE="3")[0] == ["declared input 'SCALE': '2' -> '3'"]
        assert differences(SCALE2="3")[0] == ["declared input 'SCALE2': unset -> '3'"]
        assert differences("{'a': 2}")[0] == ["declared input 3: {'a': 1} -> {'a': 2}"]
        weights.write_text("2")
        assert differences()[0] == ["declared input weights.json: content changed"]
        weights.unlink()
        assert differences()[0] == ["declared input weights.json: content: there -> missing"]
        weights.write_text("2")
        _, [line] = differences(call="declares(np.ones(3, np.float32))")
        assert line.endswith(" (declared input weights.json: content changed)")
        why = cli("cache", "why", "declares", env={"JITSERVER_ADDRESS": own.address})
        assert why.stdout.splitlines()[2:] == ["  declared input weights.json: content changed"]


TELLS = """
    import configparser, contextlib, io, json, os, sys, threading, numpy as np, jitclient

    class Config:
        def __init__(self):
            self.scale = os.environ

    CONFIG = Config()

    @jitclient.jit
    def reads(x):
        return x * float(CONFIG.scale["SCALE"])

    @jitclient.jit
    def prints(x):
        import jax
        jax.debug.print("hello")
        return x * float(CONFIG.scale["SCALE"])

    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        for _ in range(3):
            reads(np.ones(3, np.float32)), prints(np.ones(3, np.float32))
    print(json.dumps(said.getvalue().splitlines()))
"""


def test_the_setting_tells_the_cause_and_the_price_of_what_happens_in_this_process(own: Any) -> None:
    env = {"SCALE": "2", "JITSERVER_REPORT": "lines", "JITSERVER_FALLBACK": "local", "PYTHONWARNINGS": "ignore"}
    with own.serving():
        reads, prints = own.run(TELLS, **env)
        took = "traced in this process in .* m?s, compiled in .* m?s"
        cause = r"os\.environ is read .*; reached by global CONFIG of reads -> attribute scale of Config"
        assert re.fullmatch(rf"jitserver: reads\(f32\[3\]\)  {took} \({cause}\)", reads)
        here = "the callbacks stay in this process: debug_print of 'hello'"
        cause_here = cause.replace("reads", "prints")
        assert re.fullmatch(f"jitserver: prints  ran in this process in .* m?s \\({cause_here}; {here}\\)", prints)
        reads, prints = own.run(TELLS, **env)
        took = "traced in this process in .* m?s"
        assert re.fullmatch(rf"jitserver: reads\(f32\[3\]\)  {took} \({cause}\)", reads), "its program was there"
