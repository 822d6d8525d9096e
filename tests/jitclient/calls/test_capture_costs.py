"""Captures that cost more than they save are abandoned, in the next process at once."""

import functools
import itertools
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from jitclient.calls.capture_costs import CaptureCosts
from jitclient.core.directories import captures_directory, environment_directory
from jitclient.core.settings import settings
from jitclient.errors import AmbientInput, CaptureError, CaptureTooSlow

SLOW = CaptureTooSlow("takes more than 1.0 s")
DAY = 24 * 3600.0


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("JITSERVER_CACHE_DIR", str(tmp_path / "cache"))
    settings.cache_clear()
    yield
    settings.cache_clear()


def step(x: Any) -> Any:
    return x + 1


def other(x: Any) -> Any:
    return x + 2


def limit(costs: CaptureCosts) -> float:
    """The budget of the next capture, in whole milliseconds."""
    reads = iter([0.0])
    budget = CaptureCosts(costs._fun, clock=lambda: next(reads), now=costs._now).budget()
    budget._every = 1
    for milliseconds in range(1, 20_000):
        budget._clock = functools.partial(float, milliseconds / 1000)
        try:
            budget.check()
        except CaptureTooSlow:
            return (milliseconds - 1) / 1000
    return float("inf")


def costs(fun: Callable[..., Any] = step, now: float = 1000.0) -> CaptureCosts:
    """Return the costs that another process knows of a function."""
    return CaptureCosts(fun, clock=lambda: 0.0, now=lambda: now)


def test_a_capture_may_take_a_second() -> None:
    assert limit(costs()) == 1.0
    assert not costs().is_known()
    assert not captures_directory(environment_directory()).exists()


@pytest.mark.parametrize(
    ("why", "spent", "traced", "next_limit"),
    [
        (SLOW, 1.0, 0.3, 0.1),
        (SLOW, 1.0, 1.9, 0.1),
        (SLOW, 1.0, 7.0, 7.0),
        (CaptureError("order of sets"), 0.5, 0.3, 0.1),
        (CaptureError("order of sets"), 0.5, 7.0, 1.0),
        (CaptureError("order of sets"), 0.1, 0.0, 1.0),
        (AmbientInput("reads the clock"), 0.9, 0.0, 1.0),
    ],
)
def test_what_was_of_no_use_limits_the_next_process(
    why: CaptureError, spent: float, traced: float, next_limit: float
) -> None:
    here = costs()
    here.weigh(spent, why, traced)
    assert limit(costs()) == next_limit
    assert costs().is_known() == here.is_known() == (next_limit != 1.0)


def test_what_cannot_be_sent_without_a_capture_is_captured() -> None:
    costs().require()
    assert limit(costs()) == float("inf")


def test_a_trace_that_is_longer_is_no_reason_to_try_for_ever() -> None:
    costs().weigh(1.0, SLOW, 3.0)
    assert limit(costs()) == 3.0
    costs().weigh(3.0, SLOW, 3.2)
    assert limit(costs()) == 0.1
    # A short trial says nothing of the time that a capture takes.
    costs().weigh(0.1, SLOW, 3.2)
    assert limit(costs()) == 0.1


def test_a_record_holds_for_a_day_though_it_is_confirmed() -> None:
    costs(now=0.0).weigh(1.0, SLOW, 0.3)
    costs(now=DAY - 1).weigh(0.1, SLOW, 0.3)
    assert limit(costs(now=DAY - 1)) == 0.1
    assert limit(costs(now=DAY + 1)) == 1.0
    assert limit(costs(now=-1.0)) == 1.0


def test_the_reason_is_that_of_the_capture_which_failed() -> None:
    costs().weigh(0.5, CaptureError("depends on the order of sets"), 0.3)
    ticks = itertools.count()
    budget = CaptureCosts(step, clock=lambda: next(ticks), now=lambda: 1000.0).budget()
    budget._every = 1
    with pytest.raises(CaptureTooSlow, match=r"took 0\.5 s today, and failed: depends on the order of sets"):
        budget.check()


def test_functions_are_told_apart_by_their_code_and_that_of_what_they_wrap() -> None:
    def wrapping(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x: function(x)

    costs(wrapping(step)).weigh(1.0, SLOW, 0.3)
    assert limit(costs(wrapping(step))) == 0.1
    assert limit(costs(functools.partial(wrapping(step), 1))) == 1.0
    assert limit(costs(wrapping(other))) == 1.0
    assert limit(costs(step)) == 1.0


def test_a_changed_source_or_another_kind_of_seed_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("um_helper")
    module.__file__ = str(tmp_path / "um_helper.py")
    Path(module.__file__).write_text("GAIN = 1\n")
    monkeypatch.setitem(sys.modules, "um_helper", module)
    costs().weigh(1.0, SLOW, 0.3)
    with monkeypatch.context() as patch:
        patch.setenv("PYTHONHASHSEED", "1" if os.environ.get("PYTHONHASHSEED", "random") == "random" else "random")
        assert limit(costs()) == 1.0
    assert limit(costs()) == 0.1
    Path(module.__file__).write_text("GAIN = 100\n")
    assert limit(costs()) == 1.0


def test_damaged_records_and_directories_do_no_harm(tmp_path: Path) -> None:
    costs().weigh(1.0, SLOW, 0.3)
    (record,) = captures_directory(environment_directory()).iterdir()
    record.write_bytes(b"\x93")
    assert limit(costs()) == 1.0
    record.unlink()
    record.parent.rmdir()
    record.parent.write_text("not a directory")
    here = costs()
    here.weigh(1.0, SLOW, 0.3)
    assert here.is_known()
    assert limit(costs()) == 1.0


def test_old_records_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jitclient.calls.capture_costs._MAX_BYTES", 100)
    for number in range(20):
        costs(eval(f"lambda x: x + {number}")).weigh(1.0, SLOW, 0.3)
    assert len(list(captures_directory(environment_directory()).iterdir())) < 5


PROGRAM = """
    import functools, itertools, json, os, warnings, numpy as np, jitclient
    from jitclient.calls import general_path

    reads = itertools.count()
    tick = float(os.environ["TICK"])
    clock = lambda: next(reads) * tick
    general_path.CaptureCosts = functools.partial(general_path.CaptureCosts, clock=clock)
    LAYERS = [{{"gain": [4.0]}}, *([number] for number in range(200))]

    def step(x):
        {body}
        return x * LAYERS[0]["gain"][0]

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        served = jitclient.jit(step)
        values = [float(served(np.float32(1))), float(np.asarray(served(np.ones(1, np.float32)))[0])]
    notes, total = [str(w.message) for w in caught if issubclass(w.category, RuntimeWarning)], next(reads)
    print(json.dumps([values, notes, total, jitclient.explain(served, np.ones(2, np.float32)).reason]))
"""


@pytest.fixture
def own(new_daemon: Callable[..., Any], counts: Callable[..., dict[str, Any]], short_path: Path) -> Any:
    """Runs the program, whose file stays as it is; returns what it says and what its daemon counted for it."""
    address, path = f"unix:{short_path}/d.sock", short_path / "program.py"
    before: dict[str, Any] = {}

    def run(tick: float, body: str = "pass", fallback: str = "local") -> Any:
        if not path.exists():
            path.write_text(textwrap.dedent(PROGRAM).format(body=body))
        folders = {"JITSERVER_ADDRESS": address, "JITSERVER_CACHE_DIR": str(short_path / "cache")}
        env = {**os.environ, **folders, "JITSERVER_FALLBACK": fallback, "TICK": str(tick)}
        done = subprocess.run([sys.executable, path], env=env, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stderr
        said, now = json.loads(done.stdout.splitlines()[-1]), counts(address)
        found = [now[name] - before.get(name, 0) for name in ("client_traces", "traces", "local_runs")]
        before.update(now)
        return *said, found

    with new_daemon(address):
        yield run


def test_a_slow_capture_is_given_up_once_with_one_note(own: Any) -> None:
    values, notes, reads, reason, found = own(0.25)
    assert values == [4.0, 4.0]
    assert reason.startswith("traced in the client: its capture took")
    assert found == [2, 0, 0]
    assert len(notes) == 1
    assert "step is traced in each process: capturing all that it depends on takes more than 1.0 s" in notes[0]

    values, notes, fewer_reads, _, found = own(0.25)
    assert (values, notes, found) == ([4.0, 4.0], [], [2, 0, 0])
    assert fewer_reads < reads

    # The function is captured at once in a process for which the capture is fast enough.
    values, notes, _, _, found = own(0.0)
    assert (values, notes, found) == ([4.0, 4.0], [], [0, 2, 0])


def test_a_program_that_cannot_be_sent_is_captured_after_all(own: Any) -> None:
    body = "import jax; x = jax.pure_callback(lambda v: v * 1, x, x)"
    values, notes, _, _, found = own(0.25, body)
    assert (values, notes, found) == ([4.0, 4.0], [], [0, 2, 0])
    again = own(0.25, body)
    assert again[4] == [0, 0, 0], again


def test_a_capture_that_shows_what_is_rebound_is_of_use(own: Any, short_path: Path) -> None:
    body = "for name in {text for text in LAYERS[0]} | {str(len(LAYERS))}: x = x + len(name) - len(name)"
    values, notes, reads, _, _ = own(0.02, body)
    assert (values, notes) == ([4.0, 4.0], [])
    assert reads > 10  # 0.2 s
    assert list(short_path.glob("cache/*/captures/*")) == []


def test_without_a_fallback_a_capture_takes_as_long_as_it_takes(own: Any) -> None:
    assert own(0.25, fallback="error") == ([4.0, 4.0], [], 0, None, [0, 2, 0])
