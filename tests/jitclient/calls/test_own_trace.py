"""A function that cannot be captured is traced in the client, and its program runs on the daemon; else it runs here."""

import functools
import operator
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.experimental import pallas

import jitclient
from jitclient.calls.own_trace import OwnTrace
from jitclient.calls.raised import Raised
from jitclient.capture.codec import values
from jitclient.jaxside.evidence import difference_of_evidence, evidence_of, order_free
from jitclient.jaxside.trace_events import code_of
from jitclient.wire.messages import DeviceInfo, Evidence, Spec

COUNTED = ("traces", "compiles", "hits", "misses", "captures_loaded", "client_traces", "local_runs")

READS = """
    import json, os, sys, time, jax, jax.numpy as jnp, numpy as np, jitclient

    import configparser, scipy.stats

    FILE = {file!r}

    def swallowing():
        try:
            return float(os.environ["SCALE"])
        except Exception:
            return 1.0

    @jitclient.jit(static_argnums=1, donate_argnames="old")
    def reads(x, how, *, old=None):
        scale = {use}
        return {{"y": jnp.sin(x["a"]) * scale, "n": how, "old": None if old is None else old + 1}}

    values = [reads({{"a": np.ones(3, np.float32)}}, 2, old=jitclient.device_put(np.float32(1))) for _ in range(3)]
    y, n = values[0]["y"], values[0]["n"]
    print(json.dumps([float(np.asarray(y)[0]), y.weak_type, n.weak_type, float(values[2]["old"])]))
"""

USES = {
    "a generator, through installed code": "2.0 + 0 * scipy.stats.norm.rvs()",
    "file, through installed code": "2.0 * len(configparser.ConfigParser().read(FILE))",
    "environment, and the error is swallowed": "swallowing()",
    "environment": 'float(os.environ["SCALE"])',
    "file": 'float(open(os.environ["FILE"]).read())',
    "clock": "min(time.time(), 2.0)",
    "global generator": "2.0 + 0 * np.random.rand()",
    "file inside installed code": 'float(json.load(open(os.environ["FILE"])))',
}


@pytest.fixture
def own(
    new_daemon: Callable[..., Any], counts: Callable[..., dict[str, Any]], short_path: Path
) -> Iterator[Callable[..., Any]]:
    """The counters of a daemon of the test's own since it last asked, and the environment to reach it."""
    address = f"unix:{short_path}/d.sock"
    last = dict.fromkeys(COUNTED, 0)

    def since() -> dict[str, int]:
        nonlocal last
        now = {name: value for name, value in counts(address).items() if name in COUNTED}
        before, last = last, now
        return {name: now[name] - before[name] for name in COUNTED}

    with new_daemon(address):
        since.env = {
            "JITSERVER_ADDRESS": address,
            "SCALE": "2.0",
            "FILE": str(short_path / "two"),
            "INI": str(short_path / "ini"),
        }  # type: ignore[attr-defined]
        (short_path / "two").write_text("2.0")
        (short_path / "ini").write_text("[a]\nb = 2")
        yield since


@pytest.mark.parametrize("use", USES)
def test_it_is_traced_here_and_its_program_is_shared(use: str, own: Any, run_script: Callable[..., Any]) -> None:
    program = READS.format(use=USES[use], file=own.env["INI"])
    first = run_script(program, env=own.env)
    assert first == [pytest.approx(0.84147 * 2, abs=1e-4), False, True, 2.0]
    made = own()
    assert (made["client_traces"], made["compiles"], made["local_runs"]) == (1, 1, 0)

    assert run_script("\n\n" + program, env=own.env) == first
    again = own()
    assert (again["client_traces"], again["compiles"], again["hits"], again["traces"]) == (1, 0, 1, 0)


def test_what_no_daemon_can_send_is_traced_there_once_for_all(own: Any, run_script: Callable[..., Any]) -> None:
    program = """
        import json, jax, jitclient
        value, pull = jitclient.jit(lambda x: jax.vjp(lambda y: y**3, x))(2.0)
        print(json.dumps([float(value), *map(float, pull(1.0))]))
    """
    for traces in (1, 0):
        assert run_script(program, env=own.env) == [8, 12]
        made = own()
        assert (made["traces"], made["client_traces"], made["local_runs"]) == (traces, 1, 0)


@pytest.mark.core
def test_arguments_that_are_committed_to_the_device_are_no_difference(own: Any, run_script: Callable[..., Any]) -> None:
    program = """
        import json, jax, numpy as np, jitclient

        @jitclient.jit
        def drawn(key, x):
            return key, x + jax.random.uniform(key)

        key, x = jax.device_put((jax.random.key(1), np.float32(2)), jax.devices()[0])
        handle = jitclient.device_put(np.float32(2))
        print(json.dumps([float(drawn(key, given)[1]) for given in (x, handle)]))
    """
    for traces in (1, 0):
        assert len(set(run_script(program, env=own.env))) == 1
        made = own()
        assert (made["traces"], made["client_traces"], made["local_runs"]) == (traces, 0, 0)


def test_function_that_changed_since_it_was_traced_is_not_shared(own: Any, run_script: Callable[..., Any]) -> None:
    program = """
        import json, jitclient

        FACTOR = {factor}

        @jitclient.jit(deps=[])
        def scaled(x):
            return x * FACTOR

        lowered = scaled.lower(5.0)
        values = [lowered.compile()(5.0)]
        FACTOR = 3.0
        print(json.dumps([*map(float, (*values, lowered.compile()(5.0), scaled(5.0)))]))
    """
    assert run_script(program.format(factor=2.0), env=own.env) == [10, 10, 15]
    assert run_script(program.format(factor=3.0), env=own.env) == [15, 15, 15]


def test_another_input_is_another_program(own: Any, run_script: Callable[..., Any]) -> None:
    program = READS.format(use=USES["environment"], file="")
    first = run_script(program, env=own.env)
    other = run_script(program, env={**own.env, "SCALE": "3.0"})
    assert other[0] == pytest.approx(first[0] * 1.5)
    assert own()["compiles"] == 2


def test_a_trace_with_callbacks_runs_here_with_one_warning(own: Any, run_script: Callable[..., Any]) -> None:
    values, warned = run_script(
        """
        import json, os, warnings, jax, numpy as np, jitclient

        @jitclient.jit
        def calls_back(x):
            scale = float(os.environ["SCALE"])
            return jax.pure_callback(lambda v: np.asarray(v * scale, np.float32), x, x)

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            values = [float(calls_back(np.float32(n))) for n in range(3)]
        print(json.dumps([values, [str(w.message) for w in caught if issubclass(w.category, RuntimeWarning)]]))
        """,
        env={**own.env, "JITSERVER_FALLBACK": "local"},
    )
    assert values == [0, 2, 4]
    assert len(warned) == 1
    assert "calls_back runs in this process" in warned[0]
    assert own()["local_runs"] == 3


def test_with_the_setting_it_is_an_error_instead(own: Any, run_script: Callable[..., Any]) -> None:
    name, text = run_script(
        """
        import json, os, jax, numpy as np, jitclient

        @jitclient.jit
        def calls_back(x):
            scale = float(os.environ["SCALE"])
            return jax.pure_callback(lambda v: np.asarray(v * scale, np.float32), x, x)

        try:
            calls_back(np.float32(1))
        except jitclient.CaptureError as error:
            print(json.dumps([type(error).__name__, str(error)]))
        """,
        env=own.env,
    )
    assert name == "CaptureError"
    assert "the callbacks stay in this process: pure_callback of calls_back.<locals>.<lambda>" in text


@pytest.mark.parametrize("use", ["environment", "file"])
def test_declared_inputs_join_the_key_and_nothing_is_traced_again(
    use: str, own: Any, run_script: Callable[..., Any], short_path: Path
) -> None:
    declared = 'deps=["SCALE", Path(os.environ["FILE"]), 7]'
    program = READS.format(use=USES[use], file=own.env["INI"]).replace(
        "static_argnums=1", f"static_argnums=1, {declared}"
    )
    program = program.replace("import json, os", "import json, os; from pathlib import Path; import os")
    first = run_script(program, env=own.env)
    made = own()
    assert (made["client_traces"], made["compiles"], made["traces"]) == (1, 1, 0)

    (short_path / "copy").write_text("2.0")
    moved = {**own.env, "FILE": str(short_path / "copy")}
    assert run_script(program, env=moved) == first
    again = own()
    assert (again["client_traces"], again["traces"], again["compiles"], again["hits"]) == (0, 0, 0, 1)

    (short_path / "copy").write_text("4.0")
    other = run_script(program, env={**moved, "SCALE": "4.0"})
    assert other[0] == pytest.approx(first[0] * 2)
    assert own()["client_traces"] == 1


def test_declared_inputs_that_change_under_a_process_are_seen(own: Any, run_script: Callable[..., Any]) -> None:
    values = run_script(
        """
        import json, os, jitclient
        from pathlib import Path

        @jitclient.jit(deps=["SCALE", Path(os.environ["FILE"])])
        def reads(x):
            return x * float(os.environ["SCALE"]) * float(Path(os.environ["FILE"]).read_text())

        values = [float(reads(1.0))]
        os.environ["SCALE"] = "3.0"
        values.append(float(reads(1.0)))
        Path(os.environ["FILE"]).write_text("10.00")
        values.append(float(reads(1.0)))
        print(json.dumps(values))
        """,
        env=own.env,
    )
    assert values == [4, 6, 30]


def test_a_declared_input_that_changes_after_the_trace_is_seen(own: Any, run_script: Callable[..., Any]) -> None:
    values = run_script(
        """
        import json, os, jitclient
        from pathlib import Path
        from jitclient.calls import own_program

        def fails(miss, why):
            if gain.read_text() == "2.0":
                gain.write_text("5.0")
            raise jitclient.CaptureError("the program cannot be shared")

        own_program.for_all_processes = fails
        gain = Path(os.environ["FILE"])
        scaled = jitclient.jit(lambda x: x * float(gain.read_text()), deps=[gain])
        print(json.dumps([float(scaled(1.0)) for _ in range(2)]))
        """,
        env=own.env,
    )
    assert values == [5.0, 5.0]


@pytest.mark.parametrize("wrong", ["SCALE", Path("x")])
def test_one_input_alone_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match="sequence"):
        jitclient.jit(lambda x: x, deps=wrong)


def test_the_key_of_an_ambient_function_is_an_error_that_names_the_way(tmp_path: Path) -> None:
    with (tmp_path / "data").open("w") as file:

        def reads(x: Any) -> Any:
            return x + len(file.name)

        with pytest.raises(jitclient.AmbientInput, match="file"):
            jitclient.function_key(reads)
    with pytest.raises(jitclient.AmbientInput, match="open"):
        jitclient.function_key(lambda: open("/etc/hostname"))  # noqa: SIM115


def test_side_effects_happen_here_and_their_programs_run_there(own: Any, run_script: Callable[..., Any]) -> None:
    printed = run_script(
        """
        import json, jax, numpy as np, jitclient, warnings

        seen = []

        @jitclient.jit
        def watched(x):
            jax.debug.callback(lambda v: seen.append(float(v)), x)
            return x + 1

        array = jitclient.device_put(np.float32(5))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            values = [float(watched(np.float32(1))), float(watched(array))]
        jax.effects_barrier()
        print(json.dumps([values, seen, sum("in this process" in str(w.message) for w in caught)]))
        """,
        env={**own.env, "JITSERVER_FALLBACK": "local"},
    )
    assert printed == [[2, 6], [1, 5], 0]
    made = own()
    assert (made["traces"], made["client_traces"], made["local_runs"]) == (1, 0, 0)


def test_effects_under_a_loop_are_those_of_jax_in_their_order(own: Any, run_script: Callable[..., Any]) -> None:
    ours, theirs = run_script(
        """
        import contextlib, io, json, warnings, jax, jax.numpy as jnp, numpy as np, jitclient
        from jax.experimental import io_callback

        drawn = []

        def draw(n):
            drawn.append(int(n))
            return np.float32(10 * len(drawn))

        def watched(xs):
            def body(carry, x):
                jax.debug.print("x={x} carry={c}", x=x, c=carry, ordered=True)
                got = io_callback(draw, jax.ShapeDtypeStruct((), "float32"), x, ordered=True)
                return carry + got * x, got

            return jax.lax.scan(body, jnp.float32(0), xs)

        def found(jit, *arguments):
            drawn.clear()
            jitted = jit(watched)
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                results = [jax.tree.map(lambda leaf: np.asarray(leaf).tolist(), jitted(x)) for x in arguments]
                jax.effects_barrier()
            return [results, list(drawn), printed.getvalue()]

        warnings.simplefilter("ignore")
        numbers = [np.arange(n, n + 3, dtype=np.float32) for n in (1, 4)]
        handles = [jitclient.device_put(one) for one in numbers]
        print(json.dumps([found(jitclient.jit, *handles), found(jax.jit, *numbers)]))
        """,
        env={**own.env, "JITSERVER_FALLBACK": "local"},
    )
    assert ours == theirs
    assert ours[1] == [1, 2, 3, 4, 5, 6]
    assert ours[2].startswith("x=1.0 carry=0.0\nx=2.0 carry=10.0\n")


def test_a_rebound_global_of_what_is_traced_here_is_seen(own: Any, run_script: Callable[..., Any]) -> None:
    values = run_script(
        """
        import json, os, jitclient
        LR = 1.0

        @jitclient.jit
        def reads(x):
            return x * float(os.environ["SCALE"]) * LR

        values = [float(reads(1.0))]
        LR = 10.0
        values.append(float(reads(1.0)))
        print(json.dumps(values))
        """,
        env=own.env,
    )
    assert values == [2, 20]


def test_the_key_of_a_function_with_declared_inputs() -> None:
    def reads(x: Any) -> Any:
        return x + len(os.environ["HOME"])

    key = jitclient.function_key(jitclient.jit(reads, deps=["HOME"]))
    assert key == jitclient.function_key(jitclient.jit(reads, deps=["HOME"]))


def own_trace(fun: Callable[..., Any], platform: str = "cpu", devices: Sequence[DeviceInfo] = ()) -> OwnTrace:
    x = np.float32(1)
    made = OwnTrace(lambda: jax.jit(fun), (x,), {}, [x], (Spec((), "float32"),))
    made.run(platform, devices, None, "")
    return made


def test_which_code_shows_that_jax_traced_a_function() -> None:
    def fun(x: Any) -> Any:
        return x

    class Called:
        def __call__(self, x: Any) -> Any:
            return x

        def method(self, x: Any) -> Any:
            return x

    expected: list[tuple[Any, Any]] = [
        (fun, fun),
        (functools.partial(fun), fun),
        (jax.jit(fun), fun),
        (jitclient.jit(functools.partial(fun)), fun),
        (Called(), Called.__call__),
        (Called().method, Called.method),
        (jax.custom_jvp(fun), fun),
    ]
    for given, code in expected:
        assert code_of(jax.jit(given)) is code.__code__, given
    for given in (jax.numpy.sin, len, Called, np.add, operator.itemgetter(0)):
        assert code_of(jax.jit(given)) is None, given


def test_the_order_on_the_wire_changes_nothing_else() -> None:
    x, y, z = (np.ones(n, np.float32) for n in (1, 2, 3))
    specs = tuple(Spec(each.shape, "float32") for each in (x, y, z))
    jitted = jax.jit(lambda a, b, c: (a * 2, b), donate_argnums=0, keep_unused=True)
    made = OwnTrace(lambda: jitted, (x, y, z), {}, [x, y, z], specs, {"keep_unused": True})
    made.run("cpu", [], (2, 1, 0), "")
    traced = jax.jit(lambda c, b, a: [a * 2, b], donate_argnums=2, keep_unused=True).trace(z, y, x)
    assert made.evidence(values.no_deref) == evidence_of(traced, traced.lower(), values.no_deref)


@pytest.mark.filterwarnings("ignore")  # JAX's one of the Triton backend
def test_a_trace_that_only_the_daemon_can_lower_is_compared_by_its_jaxpr() -> None:
    def doubled(given: Any, result: Any) -> None:
        result[...] = given[...] * 2

    def calls_back(x: Any) -> Any:
        jax.debug.print("{}", x)
        return x + 1

    def compiles_a_kernel(x: Any) -> Any:
        return pallas.pallas_call(doubled, out_shape=x)(x)

    def ref(value: Any) -> None:
        """Return no position: nothing is captured."""

    for fun, number in (calls_back, 1), (compiles_a_kernel, 0):
        own = own_trace(fun, "cuda", [DeviceInfo("NVIDIA H100 80GB HBM3", "gpu", None)])
        evidence = own.evidence(ref)
        assert len(evidence.callbacks) == len(own.callbacks()) == number
        assert difference_of_evidence(evidence, Evidence(b"another", callbacks=evidence.callbacks))
        assert own.order_free(ref) == order_free(jax.jit(fun).trace(np.float32(1)), None, ref) != b""


def test_whatever_keeps_a_program_here_is_an_error_of_capture() -> None:
    def calls_out(x: Any) -> Any:
        return jax.ffi.ffi_call("no_guarantee", jax.ShapeDtypeStruct(x.shape, x.dtype))(x)

    def fails(x: Any) -> Any:
        raise ValueError("of the user")

    own = own_trace(calls_out)
    assert own.unreachable_functions() == "foreign function no_guarantee (jax.ffi)"
    with pytest.raises(jitclient.CaptureError, match="cannot be sent to the daemon: Cannot serialize code with custom"):
        own.exported("calls_out")
    with pytest.raises(Raised) as raised:
        own_trace(fails)
    assert repr(raised.value.error) == "ValueError('of the user')"
