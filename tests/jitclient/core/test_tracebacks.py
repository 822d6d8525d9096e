"""The errors that classic mistakes end in are JAX's, with one line of advice under them, and the frames of the user."""

import copy
import operator
import os
import pickle
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from flax.errors import TraceContextError

import jitclient


class Scale(nnx.Module):
    def __init__(self):
        self.weight = nnx.Param(jnp.ones(3))
        self.count = nnx.Variable(jnp.zeros(()))


scale = Scale()


def branch(x):
    return x if x > 0 else -x


def repeat(x):
    for _ in range(x.astype(int)):
        x = x + 1
    return x


def collect(x):
    seen = []
    jax.lax.fori_loop(0, 3, lambda i, c: (seen.append(c), c + 1)[1], x)
    return jax.lax.scan(lambda c, _: (c + seen[0], None), x, None, length=2)[0]


def dot_with_a_param(x):
    return jax.lax.dot(x, scale.weight)


def change_a_module_in_a_loop(x):
    def body(i, c):
        scale.count[...] += 1
        return c

    return jax.lax.fori_loop(0, 3, body, x)


MISTAKES = [
    (branch, jax.errors.TracerBoolConversionError, "jax.lax.cond"),
    (repeat, jax.errors.TracerIntegerConversionError, "jax.lax.fori_loop"),
    (collect, jax.errors.UnexpectedTracerError, "kept an intermediate value"),
    (dot_with_a_param, ValueError, "nnx.Param"),
    (change_a_module_in_a_loop, TraceContextError, "nnx.split"),
]


@pytest.mark.usefixtures("daemon")
@pytest.mark.parametrize(("mistake", "error", "advice"), MISTAKES, ids=[mistake.__name__ for mistake, *_ in MISTAKES])
def test_a_classic_mistake_gets_jaxs_error_and_one_hint(mistake, error, advice):
    x = jnp.ones(3) if mistake is dot_with_a_param else jnp.ones(())
    with pytest.raises(error) as plain:
        jax.jit(mistake)(x)
    with pytest.raises(error) as ours:
        jitclient.jit(mistake)(x)
    assert type(ours.value) is type(plain.value)
    hints = [note for note in ours.value.__notes__ if note.startswith("hint: ")]
    assert len(hints) == 1
    assert advice in hints[0]


@pytest.mark.usefixtures("daemon")
def test_other_errors_get_none():
    def fails(x):
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine") as ours:
        jitclient.jit(fails)(1.0)
    assert not [note for note in getattr(ours.value, "__notes__", []) if note.startswith("hint: ")]


@pytest.fixture
def short_tracebacks():
    """JAX leaves its own frames out, as it does by default; an engine in this process may have turned that off."""
    before = jax.config.jax_traceback_filtering
    jax.config.update("jax_traceback_filtering", "auto")
    yield
    jax.config.update("jax_traceback_filtering", before)


@pytest.mark.usefixtures("daemon", "short_tracebacks")
@pytest.mark.parametrize(
    ("function", "options", "args"),
    [
        (lambda a, b: a @ b, {}, (np.ones((2, 3)), np.ones((2, 3)))),
        (lambda a: undefined + a, {}, (1.0,)),  # type: ignore[name-defined]  # noqa: F821
        (lambda n, x: x, {"static_argnums": 0}, ([1], 1.0)),
        (lambda a, b: a, {}, (1.0,)),
        (lambda a: a, {}, ("text",)),
    ],
    ids=["shapes", "raises", "static argument without hash", "missing argument", "no array"],
)
def test_a_traceback_has_the_frames_of_plain_jax(function, options, args):
    frames = []
    for jit in (jax.jit, jitclient.jit):
        jitted = jit(function, **options)
        for _ in range(2):
            with pytest.raises(Exception) as caught:  # noqa: PT011
                jitted(*args)
            found = traceback.extract_tb(caught.value.__traceback__)
            frames.append([(frame.filename, frame.lineno, frame.name) for frame in found])
    assert frames[2:] == frames[:2]


class Side:
    """Plain JAX, or jitclient: how a mistake makes its arrays and jitted functions."""

    def __init__(self, module: Any) -> None:
        self.jit, self.put = module.jit, module.device_put
        self.x = self.put(np.ones((3, 2), np.float32))
        self.one = self.put(np.float32(1))
        self.deleted = self.put(np.ones(3, np.float32))
        self.deleted.delete()
        self.identity = self.jit(lambda a: a)
        self.product = self.jit(lambda a, b: a @ b)


ON_ARRAYS: dict[str, Callable[[Side], Any]] = {
    "operator, shapes": lambda on: on.x + on.put(np.ones(5, np.float32)),
    "operator, object": lambda on: on.x + object(),
    "operator, list": lambda on: operator.add(on.x, [1.0]),
    "product": lambda on: on.x @ on.x,
    "index": lambda on: on.x[1.5],
    "many indices": lambda on: on.x[0, 0, 0],
    "assignment": lambda on: operator.setitem(on.x, 0, 1),
    "method": lambda on: on.x.reshape(7),
    "keyword": lambda on: on.x.sum(nonsense=1),
    "at": lambda on: on.x.at[0].set(np.ones(9, np.float32)),
    "deleted, operator": lambda on: on.deleted + 1,
    "deleted, asarray": lambda on: np.asarray(on.deleted),
    "deleted, numpy": lambda on: np.add(on.deleted, 1),
    "deleted, tolist": lambda on: on.deleted.tolist(),
    "deleted, wait": lambda on: on.deleted.block_until_ready(),
    "deleted, repr": lambda on: repr(on.deleted),
    "deleted, pickle": lambda on: pickle.dumps(on.deleted),
    "deleted, copy": lambda on: copy.copy(on.deleted),
    "deleted, devices": lambda on: on.deleted.devices(),
    "deleted, jnp": lambda on: jnp.add(on.deleted, 1),
    "deleted, argument": lambda on: on.identity(on.deleted),
    "float": lambda on: float(on.x),
    "bool": lambda on: bool(on.x),
    "int as index": lambda on: operator.index(on.x),
    "len": lambda on: len(on.one),
    "iteration": lambda on: list(on.one),
    "item": lambda on: on.x.item(77),
    "hash": lambda on: hash(on.x),
    "attribute": lambda on: on.x.nonsense,
    "to_device": lambda on: on.x.to_device("nonsense"),
    "no array": lambda on: on.put("text"),
    "no function": lambda on: on.jit(3),
    "no such argument": lambda on: on.jit(lambda a: a, static_argnames="b"),
    "no such option": lambda on: on.jit(lambda a: a, nonsense=1),
    "trace": lambda on: on.product.trace(on.x, on.x),
    "eval_shape": lambda on: on.product.eval_shape(on.x, on.x),
    "compiled": lambda on: on.identity.lower(on.x).compile()(1.0),
}


def users_frames(error: BaseException) -> list[tuple[str, str, int]]:
    """The frames of a traceback that are not of JAX."""
    walked = traceback.walk_tb(error.__traceback__)
    frames = [(frame.f_globals["__name__"], frame.f_code.co_name, line) for frame, line in walked]
    return [frame for frame in frames if frame[0].partition(".")[0] not in ("jax", "jaxlib")]


@pytest.fixture
def sides(daemon: Any) -> list[Side]:
    return [Side(jax), Side(jitclient)]


@pytest.mark.parametrize("mistake", ON_ARRAYS)
def test_a_traceback_of_an_array_has_the_users_frames(mistake, sides):
    found = []
    for side in sides:
        with pytest.raises(Exception) as caught:  # noqa: PT011
            ON_ARRAYS[mistake](side)
        found.append(users_frames(caught.value))
    assert found[1] == found[0]


def test_a_traceback_of_rows_has_the_users_frames(daemon):
    x = jitclient.device_put(np.ones((3, 2), np.float32))
    rows = iter(x)
    x.delete()
    with pytest.raises(RuntimeError, match="deleted") as caught:
        next(rows)
    assert [name for _, name, _ in users_frames(caught.value)] == ["test_a_traceback_of_rows_has_the_users_frames"]


def test_the_users_own_error_stays_the_context(sides):
    try:
        raise KeyError("mine")
    except KeyError:
        with pytest.raises(RuntimeError, match="deleted") as caught:
            np.asarray(sides[1].deleted)
    assert isinstance(caught.value.__context__, KeyError)


REFUSED = """
import numpy as np, jitclient
from jitclient.errors import DaemonUnavailable

try:
    raise KeyError("mine")
except KeyError:
    MISTAKE
"""
CALLS = ["jitclient.jit(lambda x: x)(np.ones(3))", "jitclient.device_put(np.ones(3))", "jitclient.devices()"]


@pytest.mark.parametrize("call", CALLS)
def test_a_refused_connection_shows_the_users_frames_and_errors_alone(call, short_path, run_script):
    with socket.socket(socket.AF_UNIX) as sock:
        # Nothing listens.
        sock.bind(f"{short_path}/d.sock")
        source = REFUSED.replace("MISTAKE", call)
        check = f"""
            import json, traceback
            try:
                exec(compile({source!r}, "users.py", "exec"), {{"__name__": "users"}})
            except ConnectionError as error:
                chain = [error, error.__cause__, error.__context__, error.__context__.__context__]
                frames = [frame.f_globals["__name__"] for frame, _ in traceback.walk_tb(error.__traceback__)]
                print(json.dumps([[one and type(one).__name__ for one in chain], frames]))
        """
        chain, frames = run_script(check, env={"JITSERVER_ADDRESS": f"unix:{short_path}/d.sock"})
    assert chain == ["DaemonUnavailable", None, "KeyError", None]
    assert frames == ["__main__", "users"]


MISTAKES_OF_A_PROGRAM = """
import jax, jitclient, numpy as np

def test_it():
    try:
        jitclient.jit(lambda a, b: a @ b)(np.ones((2, 3)), np.ones((2, 3)))
    except TypeError:
        np.asarray(deleted)

deleted = jitclient.device_put(np.ones(3))
deleted.delete()
if __name__ == "__main__":
    test_it()
"""
RUNNERS = {
    "python": (),
    "python -m jitclient": ("-m", "jitclient"),
    "jitserver run": ("-P", "-m", "jitserver", "run"),
    "pytest": ("-m", "pytest", "-p", "no:cacheprovider", "--tb=short"),
    "jitserver run pytest": ("-P", "-m", "jitserver", "run", "-m", "pytest", "-p", "no:cacheprovider", "--tb=short"),
    "ipython": ("-m", "IPython"),
}


@pytest.mark.slow
@pytest.mark.parametrize("runner", RUNNERS)
def test_no_runner_shows_our_frames(runner, daemon, short_path, tmp_path):
    path = tmp_path / "test_mistakes.py"
    path.write_text(MISTAKES_OF_A_PROGRAM)
    env = {**os.environ, "XDG_RUNTIME_DIR": str(short_path), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, *RUNNERS[runner], str(path)],
        env=env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    shown = done.stdout + done.stderr
    assert "Array has been deleted" in shown
    assert "dot_general" in shown
    assert str(path.name) in shown
    assert str(Path(jitclient.__file__).parent) not in shown


@pytest.mark.usefixtures("daemon")
def test_all_frames_are_there_if_jaxs_are(monkeypatch):
    monkeypatch.setenv("JAX_TRACEBACK_FILTERING", "off")
    with pytest.raises(ZeroDivisionError) as caught:
        jitclient.jit(lambda x: 1 / 0)(1.0)
    names = {frame.f_globals["__name__"] for frame, _ in traceback.walk_tb(caught.value.__traceback__)}
    assert "jitclient.calls.remote_function" in names
