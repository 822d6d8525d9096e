"""Mistakes: the same classes as with `jax.jit`, the user's own lines, and words that help."""

import inspect
import os
import re
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jitclient
import jitserver

pytestmark = pytest.mark.usefixtures("daemon")


def raises_from(x: Any) -> Any:
    try:
        {}["missing"]
    except KeyError as error:
        raise RuntimeError("outer") from error


def branches_on_a_tracer(x: Any) -> Any:
    return x if x > 0 else -x


def mixes_shapes(x: Any) -> Any:
    return x + jnp.ones((5,))


def returns_no_array(x: Any) -> Any:
    return "text"


def makes_concrete(x: Any) -> Any:
    return float(x)


def exits(x: Any) -> Any:
    sys.exit(3)


def inner(x: Any) -> Any:
    return jnp.dot(x, jnp.ones((7, 7)))


def outer(x: Any) -> Any:
    return inner(x) + 1


MISTAKES = [
    raises_from,
    branches_on_a_tracer,
    mixes_shapes,
    returns_no_array,
    makes_concrete,
    exits,
    outer,
]

X = np.ones(3, np.float32)


@pytest.mark.parametrize("function", MISTAKES, ids=lambda f: f.__name__)
def test_the_same_class_is_raised(function: Callable[..., Any]) -> None:
    argument = np.float32(1) if function in (branches_on_a_tracer, makes_concrete) else X
    with pytest.raises(BaseException) as theirs:  # noqa: PT011
        jax.jit(function)(argument)
    with pytest.raises(BaseException) as ours:  # noqa: PT011
        jitclient.jit(function)(argument)
    assert type(ours.value) is type(theirs.value)
    assert first_line(ours.value) == first_line(theirs.value)


def first_line(error: BaseException) -> str:
    return re.sub(r"0x[0-9a-f]+", "0x", str(error)).partition("\n")[0].partition(" at /")[0]


@pytest.fixture
def short_tracebacks() -> Iterator[None]:
    """JAX leaves its own frames out, as it does by default; an engine in this process has turned that off."""
    before = jax.config.jax_traceback_filtering
    jax.config.update("jax_traceback_filtering", "auto")
    yield
    jax.config.update("jax_traceback_filtering", before)


@pytest.mark.usefixtures("short_tracebacks")
def test_the_traceback_ends_in_the_users_line() -> None:
    with pytest.raises(TypeError) as caught:
        jitclient.jit(outer)(X)
    frames = [(frame.filename, frame.name, frame.lineno) for frame in traceback.extract_tb(caught.value.__traceback__)]
    here = [frame for frame in frames if frame[0] == __file__]
    lines = {name: inspect.getsourcelines(function)[1] + 1 for name, function in (("outer", outer), ("inner", inner))}
    assert here[-2:] == [(__file__, "outer", lines["outer"]), (__file__, "inner", lines["inner"])]
    with pytest.raises(TypeError) as plain:
        jax.jit(outer)(X)
    below = [frame.name for frame in traceback.extract_tb(plain.value.__traceback__)]
    assert [name for _, name, _ in frames][-len(below) + 1 :] == below[1:], "as in JAX, behind the call"
    ours = tuple(os.path.dirname(package.__file__) + os.sep for package in (jitclient, jitserver))
    assert not [name for file, name, _ in frames[2:] if file.startswith(ours)]


def test_causes_travel() -> None:
    with pytest.raises(RuntimeError, match="outer") as chained:
        jitclient.jit(raises_from)(X)
    assert type(chained.value.__cause__) is KeyError
    assert chained.value.__cause__.args == ("missing",)


@pytest.mark.callbacks
@pytest.mark.parametrize("x64", [False, True])
def test_an_error_while_running_is_raised_too(x64: bool) -> None:
    def fails(value: Any) -> Any:
        raise OSError("from the callback")

    def fun(x: Any) -> Any:
        return jax.pure_callback(fails, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    with jax.enable_x64(x64), pytest.raises(Exception, match="from the callback"):
        jitclient.jit(fun)(X)


def test_a_bad_argument_is_named_by_its_path() -> None:
    fun = jitclient.jit(lambda params, *, mode: params)
    with pytest.raises(TypeError, match=re.escape("params['layers'][1]['name']")):
        fun({"layers": [{"w": X}, {"name": "relu", "w": X}]}, mode=1)
    with pytest.raises(TypeError, match="of type <class 'str'> and was passed to the function at path mode"):
        fun({"w": X}, mode="fast")
    with pytest.raises(TypeError, match="array of dtype object"):
        fun({"w": np.array([None])}, mode=1)


def test_wrong_arguments_are_the_functions_own_type_error() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        jitclient.jit(lambda x, y: x)(1)


def test_with_local_fallback_it_runs_here_and_warns_once(run_script: Callable[..., Any]) -> None:
    result = run_script(
        """
        import json, os, sys, warnings
        os.environ["JITSERVER_FALLBACK"] = "local"
        import jitclient

        handled = []

        @jitclient.jit
        def reads(x):
            handled.append(repr(sys.exception()))
            return x + len(os.environ["LANG_OF_TEST"])

        os.environ["LANG_OF_TEST"] = "abc"
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            values = [float(reads(1.0)), float(reads(2.0))]
        print(json.dumps([values, [str(w.message) for w in caught if "this process" in str(w.message)], handled]))
        """,
        env={"JITSERVER_ADDRESS": "unix:/nonexistent/d.sock"},
    )
    values, warned, handled = result
    assert values == [4.0, 5.0]
    assert {*handled} == {"None"}  # an exception of the user's would have ours as its context
    assert len(warned) == 1
    assert "reads runs in this process, on the cpu: " in warned[0]


def test_with_local_fallback_arrays_are_put_here(run_script: Callable[..., Any]) -> None:
    result = run_script(
        """
        import json, warnings
        import numpy as np
        import jitclient

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            tree = jitclient.device_put({"x": np.arange(3.0)})
            moved = jitclient.block_until_ready(jitclient.jit(lambda tree: tree["x"] * 2)(tree))
        kinds = [type(tree["x"]) is jitclient.Array, type(moved) is jitclient.Array]
        print(json.dumps([jitclient.device_get(moved).tolist(), kinds, [str(w.message) for w in caught]]))
        """,
        env={"JITSERVER_ADDRESS": "unix:/nonexistent/d.sock", "JITSERVER_FALLBACK": "local"},
    )
    values, kinds, warned = result
    assert values == [0.0, 2.0, 4.0]
    assert kinds == [False, False]
    assert [text.partition(":")[0] for text in warned if "put" in text] == ["device_put"]


def test_an_exception_whose_type_is_not_loaded_here_is_told_by_name(run_script: Callable[..., Any]) -> None:
    """Nor can it be loaded: otherwise the error would be that of a trace in this process."""
    name, bases, text = run_script(
        """
        import importlib.util, json, numpy as np, sys, jitclient

        class NoJax:
            def find_spec(self, name, path=None, target=None):
                if name == "jax":
                    raise ModuleNotFoundError(name)

        sys.meta_path.insert(0, NoJax())

        @jitclient.jit
        def fun(x):
            return x if x > 0 else -x

        try:
            fun(np.float32(1))
        except Exception as error:
            print(json.dumps([type(error).__name__, [c.__name__ for c in type(error).__mro__], str(error)[:40]]))
        """
    )
    assert name == "TracerBoolConversionError"
    assert "RemoteError" in bases
    assert "TypeError" in bases
    assert "Attempted boolean conversion" in text


LONG = """
import numpy as np, jitclient, time

@jitclient.jit
def slow(x):
    {waits}
    return x + {salt!r}

print(slow(np.zeros((64, 256), np.float32)).shape)
"""


@pytest.mark.slow
def test_a_long_compile_shows_itself_on_a_terminal_and_nowhere_else(tmp_path: Path, gate: Any) -> None:
    def program(waits: str) -> list[str]:
        path = tmp_path / "slow.py"
        path.write_text(LONG.format(waits=waits, salt=np.random.default_rng().random()))
        return [sys.executable, str(path)]

    piped = subprocess.run(program("time.sleep(1.5)"), capture_output=True, text=True, check=True)
    assert piped.stderr == ""
    line = re.compile(rb"(tracing|compiling|running) slow\(f32\[64,256\]\)")
    shown = in_terminal(program(gate.waits), line, gate.open)
    assert line.search(shown), shown


def in_terminal(command: list[str], line: re.Pattern[bytes], then: Callable[[], None]) -> bytes:
    """Return the text that a command writes to a terminal; call `then` once it has shown a line."""
    import os
    import pty

    main, terminal = pty.openpty()
    process = subprocess.Popen(command, stdout=terminal, stderr=terminal, env={**os.environ, "TERM": "xterm"})
    os.close(terminal)
    written = b""
    while True:
        try:
            part = os.read(main, 4096)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        written += part
        if line.search(written):
            then()
    process.wait(60)
    os.close(main)
    return written


MOVED = """
    import json, jax, numpy as np, jitclient, traceback

    def fails(v):
        raise OSError("from the callback")

    @jitclient.jit
    def fun(x, n):
        if n.shape == (2,):
            raise ValueError("from the trace")
        return jax.pure_callback(fails, x, x)

    def lines_of(*args):
        try:
            fun(*args)
        except Exception as error:
            frames = [f"{f.filename}:{f.lineno}" for f in traceback.extract_tb(error.__traceback__)]
            return frames + str(error).splitlines()

    source = open(__file__).read().splitlines()
    at = [n for n, line in enumerate(source, 1) if line.strip().startswith("raise ")]
    print(json.dumps([at, lines_of(1.0, np.zeros(1)), lines_of(1.0, np.zeros(2))]))
"""


def test_the_lines_of_an_error_are_those_of_the_source_as_it_is_now(
    run_script: Callable[..., Any], counts: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    run_script(MOVED)
    before = counts()
    (callback, trace), running, tracing = run_script("\n\n\n\n" + MOVED, name="elsewhere.py")
    after = counts()
    assert after["hits"] - before["hits"] == 1
    assert any(f'elsewhere.py", line {callback}, in fails' in line for line in running), running
    assert any(frame.endswith(f"elsewhere.py:{trace}") for frame in tracing), tracing
    assert not any(str(tmp_path / "program.py") in line for line in running + tracing)
    assert not any("/jitclient/" in frame for frame in tracing[1:-1] if "remote_function.py" not in frame), "machinery"


def test_without_a_daemon_there_is_one_warning_for_all_functions(run_script: Callable[..., Any]) -> None:
    program = """
        import json, warnings, jitclient

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            results = [jitclient.jit(lambda x, n=n: x + n)(1).item() for n in range(3)]
        print(json.dumps([results, [str(one.message) for one in caught]]))
    """
    results, (warning,) = run_script(
        program, env={"JITSERVER_FALLBACK": "local", "JITSERVER_ADDRESS": "unix:/nowhere/d.sock"}
    )
    assert results == [1, 2, 3]
    assert "runs in this process" in warning
