"""Callbacks of a client happen while its call waits for them: no other client waits, and each client has its own."""

import json
import queue
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.experimental import io_callback

import jitclient
from jitclient.session import process

pytestmark = pytest.mark.callbacks

X = np.arange(3, dtype=np.float32)


@pytest.fixture
def as_another(daemon: str) -> Callable[[Callable[[], Any]], Any]:
    """Calls a function as a client of its own, while the one that this process was waits."""

    def called(function: Callable[[], Any]) -> Any:
        before = process.current
        other = jitclient.connect(daemon)
        try:
            return function()
        finally:
            other.close()
            process.current = before

    return called


class Heard:
    """A callback that notes for which session it was called. `then` is what it does the first time.

    What it notes is in a queue, which is not part of the capture: the function stays the same.
    """

    def __init__(self, then: Callable[[], Any] = lambda: None) -> None:
        self.then = then
        self.noted: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def __call__(self, v: Any) -> Any:
        is_first = self.noted.empty()
        self.noted.put((process.session(), np.asarray(v).tolist()))
        if is_first:
            self.noted.put(self.then())
        return np.asarray(v) * 10

    def all(self) -> list[Any]:
        return [self.noted.get() for _ in range(self.noted.qsize())]


KINDS: dict[str, Callable[[Any, Any], Any]] = {
    "a value": lambda heard, x: jax.pure_callback(heard, x, x),
    "a value of a change": lambda heard, x: io_callback(heard, x, x),
    "a value, in order": lambda heard, x: io_callback(heard, x, x, ordered=True),
}


@pytest.mark.parametrize("kind", KINDS)
def test_two_clients_in_one_program_have_each_their_own_callbacks(
    kind: str, as_another: Any, counts: Callable[..., Any]
) -> None:
    heard = Heard(lambda: as_another(lambda: np.asarray(call(X + 5)).tolist()))
    call = jitclient.jit(lambda x: KINDS[kind](heard, KINDS[kind](heard, x)) + 1)
    before = counts()["traces"]
    assert np.asarray(call(X)).tolist() == (X * 100 + 1).tolist()  # for ever, if the second waited for the first
    assert counts()["traces"] == before + 1
    (first, *_), (second, *_), *_ = found = heard.all()
    assert first is process.session() is not second
    assert found == [
        (first, X.tolist()),
        (second, (X + 5).tolist()),
        (second, (X * 10 + 50).tolist()),
        (X * 100 + 501).tolist(),
        (first, (X * 10).tolist()),
    ]


@pytest.mark.parametrize("is_known", [True, False], ids=["known", "traced meanwhile"])
def test_another_client_s_programs_run_while_a_callback_waits(is_known: bool, as_another: Any) -> None:
    other = jitclient.jit(lambda x: x - 7 - is_known)
    if is_known:
        other(X)
    heard = Heard(lambda: as_another(lambda: np.asarray(other(X)).tolist()))
    call = jitclient.jit(lambda x: jax.pure_callback(heard, x, x))
    assert np.asarray(call(X)).tolist() == (X * 10).tolist()
    assert heard.all()[1] == (X - 7 - is_known).tolist()


TWO = """
    import json, subprocess, sys
    import jax, numpy as np, jitclient

    def back(v):
        print(sys.argv[1], "is asked", float(v))
        if sys.argv[1] == "first":
            done = subprocess.run([sys.executable, __file__, "second"], capture_output=True, text=True)
            print(json.dumps([done.returncode, done.stdout.splitlines(), done.stderr]))
        return v * 2

    @jitclient.jit
    def call(x):
        print("traced")
        y = jax.pure_callback(back, x, x)
        jax.debug.print("printed {}", y)
        return y + 1

    print(float(call(np.float32(len(sys.argv[1])))))
"""


@pytest.mark.slow
def test_two_processes_in_one_program_have_each_their_own_output(
    daemon: str, tmp_path: Path, counts: Callable[..., Any]
) -> None:
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(TWO))
    before = counts()["traces"]
    done = subprocess.run([sys.executable, str(path), "first"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    traced, asked, second, printed, result = done.stdout.splitlines()
    assert [traced, asked, printed, result] == ["traced", "first is asked 5.0", "printed 10.0", "11.0"]
    assert json.loads(second) == [0, ["second is asked 6.0", "printed 12.0", "13.0"], ""]
    assert counts()["traces"] == before + 1
