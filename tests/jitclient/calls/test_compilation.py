"""The work that a look-up and a miss take: one capture before the daemon is asked, one more after the own trace."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import jitclient
from jitclient import eqx as jitclient_eqx
from jitclient import nnx as jitclient_nnx
from jitclient.calls import general_path

X = np.arange(3, dtype=np.float32)
NAMES = {"a", "b", "c", "d"}


class Config:
    def __init__(self, gain: int) -> None:
        self.gain = gain

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and other.gain == self.gain

    def __hash__(self) -> int:
        return hash(self.gain)


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one with each capture of a jitted function."""
    taken: list[int] = []
    capture = general_path.capture
    monkeypatch.setattr(general_path, "capture", lambda *given, **kinds: taken.append(1) or capture(*given, **kinds))
    return taken


def plain(x: Any) -> Any:
    return x * 3 + 4


def static(x: Any, config: Config) -> Any:
    return x * config.gain


def in_order(x: Any) -> Any:
    for number, name in enumerate(NAMES):
        x = x + number * ord(name)
    return x


def of_equinox() -> tuple[Any, ...]:
    equinox = pytest.importorskip("equinox")
    model = equinox.nn.Linear(3, 2, key=jax.random.key(0))
    return lambda: jitclient_eqx.filter_jit(lambda model, x: model(x)), model, X


def of_nnx() -> tuple[Any, ...]:
    nnx = pytest.importorskip("flax.nnx")
    model = nnx.Linear(3, 2, rngs=nnx.Rngs(0))
    return lambda: jitclient_nnx.jit(lambda model, x: model(x)), model, X


KINDS: dict[str, Callable[[], tuple[Any, ...]]] = {
    "plain": lambda: (lambda: jitclient.jit(plain), X),
    "static object": lambda: (lambda: jitclient.jit(static, static_argnums=1), X, Config(2)),
    "equinox": of_equinox,
    "nnx": of_nnx,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("daemon")
def test_a_miss_takes_two_captures_and_a_hit_one(kind: str, captures: list[int]) -> None:
    make, *args = KINDS[kind]()
    make()(*args)
    assert len(captures) == 2
    make()(*args)
    assert len(captures) == 3


# Not `daemon`, because the client traces this function alone.
@pytest.mark.usefixtures("shared_daemon")
def test_the_order_of_sets_takes_no_capture_of_its_own(captures: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    jitclient.jit(in_order)(X)
    assert len(captures) == 2
    jitclient.jit(in_order)(X)
    assert len(captures) == 3


LIKE_PLAIN = """
    import io, json, pdb, warnings, jax, numpy as np, jitclient
    from jitclient.core import events

    def debugged(x):
        pdb.Pdb(stdin=io.StringIO("c\\n"), stdout=io.StringIO(), nosigint=True).set_trace()
        return x + 1

    def outcomes(jit):
        cases = [jit(debugged)]
        for options in ({"xla_no_such_option": True}, {"xla_cpu_enable_fast_math": "maybe"}):
            cases.append(jit(lambda x: x + 5, compiler_options=options))
        for case in cases + cases:
            try:
                yield np.asarray(case(np.ones(3))).tolist()
            except Exception as error:
                yield [type(error).__name__, str(error)]

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        both = [list(outcomes(jit)) for jit in (jitclient.jit, jax.jit)]
        reasons = [str(what) for what in events.log.counted("local") if "report this" in str(what)]
        print(json.dumps([*both, [str(each.message) for each in caught], reasons]))
"""


def test_debuggers_and_wrong_options_give_no_warning(shared_daemon: str, run_script: Callable[..., Any]) -> None:
    ours, plain, warned, reasons = run_script(LIKE_PLAIN, env={"JITSERVER_FALLBACK": "local"})
    assert ours == plain
    assert ours[0] == [2.0, 2.0, 2.0]
    assert "No such compile option: 'xla_no_such_option'" in ours[1][1]
    assert warned == reasons == []


def test_without_a_daemon_a_function_is_captured_once(run_script: Callable[..., Any]) -> None:
    program = """
        import json, warnings
        import numpy as np
        import jitclient
        from jitclient.calls import general_path

        taken, capture = [], general_path.capture
        general_path.capture = lambda *given, **kinds: taken.append(1) or capture(*given, **kinds)
        fn = jitclient.jit(lambda x: x * 3)
        with warnings.catch_warnings(action="ignore"):
            print(json.dumps([[float(fn(np.float32(2))) for _ in range(5)], len(taken)]))
    """
    env = {"JITSERVER_ADDRESS": "unix:/nowhere/d.sock", "JITSERVER_FALLBACK": "local"}
    assert run_script(program, env=env) == [[6.0] * 5, 1]
