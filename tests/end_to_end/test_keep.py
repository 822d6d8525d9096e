"""Kept arrays from one run of a program to the next, their budget, and daemons that stay for them."""

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jitclient
from jitclient.session import process

PROGRAM = """
    import dataclasses, json, sys
    import numpy as np
    import jitclient

    N = int(sys.argv[1])
    WITH_JAX = "jax" in sys.argv

    @dataclasses.dataclass
    class Batch:
        x: object
        y: object

    if WITH_JAX:
        import jax
        jax.tree_util.register_dataclass(Batch, ["x", "y"], [])

    def load():
        print("loading")
        x = np.arange(N, dtype=np.float32)
        return Batch(x, x * 2) if WITH_JAX else {"x": x, "y": x * 2}

    data = jitclient.keep("numbers", load)
    x, y = (data.x, data.y) if WITH_JAX else (data["x"], data["y"])
    step = jitclient.jit(lambda x, y: (x + y).sum())
    print(json.dumps([type(data).__name__, float(step(x, y)), "jax" in sys.modules]))
"""


@pytest.fixture
def own(new_daemon: Callable[..., Any], short_path: Path) -> Any:
    """Starts a daemon of the test's own; `env` makes programs its clients."""

    def start(*options: str) -> Any:  # each with the cache of the one before
        env = {"JITSERVER_CACHE_DIR": str(short_path / "cache")}
        return new_daemon(f"unix:{short_path}/d.sock", *options, env=env)

    start.env = {"JITSERVER_ADDRESS": f"unix:{short_path}/d.sock"}  # type: ignore[attr-defined]
    return start


@pytest.fixture
def client(own: Any) -> Any:
    """Makes this process a client of the test's own daemon."""
    made = []
    before = process.current

    def connect() -> Any:
        made.append(jitclient.connect(own.env["JITSERVER_ADDRESS"]))
        return made[-1]

    yield connect
    for session in made:
        session.close()
    process.current = before


@pytest.mark.parametrize("jax", [[], ["jax"]], ids=["without jax", "with jax"])
def test_the_next_run_has_the_arrays_and_runs_nothing(own: Any, jax: list[str], tmp_path: Path) -> None:
    with own():
        told = []
        for size in ("10", "10", "11"):
            told.append(_run(own, tmp_path, size, *jax))
    kind = "Batch" if jax else "dict"
    assert told == [
        ("loading\n", [kind, 135.0, bool(jax)]),
        ("", [kind, 135.0, bool(jax)]),
        ("loading\n", [kind, 165.0, bool(jax)]),
    ]


def _run(own: Any, folder: Path, *arguments: str, source: str = PROGRAM) -> Any:
    path = folder / "program.py"
    path.write_text(textwrap.dedent(source))
    env = {**os.environ, **own.env, "JITSERVER_VERIFY": "off"}  # a trace would import jax
    done = subprocess.run([sys.executable, str(path), *arguments], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    *before, last = done.stdout.splitlines(keepends=True)
    return "".join(before), json.loads(last)


KEEPS = """
    import json, sys
    import numpy as np
    import jitclient

    x, key = jitclient.keep("x", lambda: (print("loading"), (np.arange(5), 2.5))[1])
    step = jitclient.jit(lambda x: x * 2, donate_argnums=0)
    found = [np.asarray(step(x)).tolist(), float(key)]
    x, key = jitclient.keep("x", lambda: (print("loading"), (np.arange(5), 2.5))[1])
    print(json.dumps([*found, np.asarray(x).tolist()]))
"""


def test_a_planned_restart_loses_nothing(own: Any, tmp_path: Path, cli: Any) -> None:
    told, listed = [], []
    for _ in range(3):
        with own():
            if len(told) != 1:  # no program asks the second daemon
                told.append(_run(own, tmp_path, source=KEEPS))
            else:
                told.append(("", told[0][1]))
            listed.append(json.loads(cli("arrays", "ls", "--json", env=own.env).stdout)["kept"])
    assert told == [("loading\n", [[0, 2, 4, 6, 8], 2.5, [0, 1, 2, 3, 4]]), *[("", told[0][1])] * 2]
    for [one] in listed:
        assert (one["name"], one["label"], one["arrays"], one["nbytes"]) == ("x", "(i32[5], f32[]*)", 2, 24)
        assert one["created"] == listed[0][0]["created"]


MIB = 1 << 18  # float32s


def test_over_the_budget_a_call_says_who_holds_what_and_leaves_nothing(own: Any, client: Any, cli: Any) -> None:
    with own("--array-memory", "8"):
        client()
        kept = jitclient.keep("three", np.ones(3 * MIB, np.float32))
        mine = jitclient.device_put(np.ones(4 * MIB, np.float32))
        twice = jitclient.jit(lambda x: x * 2)
        before = json.loads(cli("arrays", "ls", "--json", env=own.env).stdout)
        who = r"The daemon holds 7 MiB: pid \d+ \(.*\) 4 MiB in 1 array; kept as 'three' 3 MiB in 1 array\."
        made = twice(kept)
        after = made + 1
        for handle in (made, after):
            with pytest.raises(
                jitclient.ArrayBudgetExceeded, match=rf"no room for 3 MiB .* of 8 MiB for arrays\. {who}"
            ):
                np.asarray(handle)
        with pytest.raises(jitclient.ArrayBudgetExceeded, match=who):
            jitclient.keep("of a call that failed", {"x": after})
        with pytest.raises(
            jitclient.ArrayBudgetExceeded, match=r"the array f32\[524288\] sent by a program: no room for 2 M"
        ):
            jitclient.device_put(np.ones(2 * MIB, np.float32))
        with pytest.raises(jitclient.ArrayBudgetExceeded, match="2 MiB"):
            jitclient.keep("two", np.ones(2 * MIB, np.float32))
        with pytest.raises(jitclient.ArrayBudgetExceeded, match="4 MiB"):
            jitclient.keep("three", np.ones(4 * MIB, np.float32))
        del handle, made, after
        found = json.loads(cli("arrays", "ls", "--json", env=own.env).stdout)
        assert (found["nbytes"], found["kept"]) == (before["nbytes"], before["kept"])
        assert float(jitclient.jit(lambda x: x[0])(mine)) == 1  # small ones have room
        del mine
        assert float(twice(kept)[0]) == 2


def test_a_function_that_changed_needs_room_for_one_of_its_trees_only(own: Any, client: Any, cli: Any) -> None:
    with own("--array-memory", "8"):
        client()
        for fill in (1, 2):
            made = jitclient.keep("five", lambda fill=fill: np.full(5 * MIB, fill, np.float32))
            assert float(made[0]) == fill
            del made  # else its handle would hold the array that the name frees
        with pytest.raises(jitclient.ArrayBudgetExceeded, match="9 MiB"):
            jitclient.keep("five", lambda: np.zeros(9 * MIB, np.float32))
        assert json.loads(cli("arrays", "ls", "--json", env=own.env).stdout)["kept"] == []


def test_what_is_donated_makes_room(own: Any, client: Any) -> None:
    with own("--array-memory", "8"):
        client()
        step = jitclient.jit(lambda x: x + 1, donate_argnums=0)
        x = jitclient.device_put(np.zeros(6 * MIB, np.float32))
        for _ in range(5):
            x = step(x)
        assert float(x[0]) == 5
        with pytest.raises(jitclient.ArrayBudgetExceeded):
            np.asarray(jitclient.jit(lambda x: x + 1)(x))


def test_what_is_given_by_value_and_donated_makes_none(own: Any, client: Any) -> None:
    with own("--array-memory", "8"):
        client()
        step = jitclient.jit(lambda x: x + 1, donate_argnums=0)
        held = []
        for _ in range(8):
            held.append(step(np.zeros(MIB, np.float32)))
        with pytest.raises(jitclient.ArrayBudgetExceeded):
            step(np.zeros(MIB, np.float32))


def test_what_was_freed_has_room_for_others(own: Any, client: Any) -> None:
    with own("--array-memory", "8"):
        client()
        step = jitclient.jit(lambda x: x + 1)
        x = jitclient.device_put(np.zeros(3 * MIB, np.float32))
        for _ in range(20):
            x = step(x)
        assert float(x[0]) == 20


def test_an_idle_daemon_stays_for_kept_arrays_and_no_longer(own: Any, client: Any, cli: Any, until: Any) -> None:
    with own("--idle-exit", "2") as daemon:
        session = client()
        jitclient.keep("stays", np.zeros(3))
        jitclient.keep("goes", np.zeros(4), ttl=0.1)
        session.close()

        def names() -> list[str]:
            found = json.loads(cli("arrays", "ls", "--json", env=own.env).stdout)
            return [one["name"] for one in found["kept"]]

        until(lambda: names() == ["stays"], "the unused name to be freed")
        assert daemon.poll() is None
        assert cli("arrays", "rm", "stays", env=own.env).returncode == 0
        assert daemon.wait(30) == 0


def test_without_a_daemon_the_program_goes_on(run_script: Callable[..., Any], short_path: Path) -> None:
    source = """
        import json, warnings
        import numpy as np
        import jitclient

        def load():
            print("loading")
            return {"x": np.arange(3)}

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = jitclient.keep("x", load)
            tree = jitclient.keep("y", [1.5])
        print(json.dumps([found["x"].tolist(), tree, [str(w.message)[:21] for w in caught]]))
    """
    nowhere = {"JITSERVER_ADDRESS": f"unix:{short_path}/d.sock", "JITSERVER_FALLBACK": "local"}
    assert run_script(source, env=nowhere) == [[0, 1, 2], [1.5], ["keep('x'): the arrays", "keep('y'): the arrays"]]
