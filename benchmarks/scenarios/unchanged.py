"""The check, before every call, that nothing was rebound that a captured function depends on."""

import contextlib
import functools
import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks.measure import Effort, Samples, interleave, per_call
from benchmarks.processes import temporary_folder
from benchmarks.result import OURS, Row, Target

_PICKLE = "cloudpickle"
_LIMIT, _HELPERS = 10e-6, 50  # DESIGN: at most 10 us up to 50 helpers


def rows(effort: Effort) -> Iterator[Row]:
    """Functions with more and more helpers; pickling them again is the other way to know."""
    for helpers in effort.sizes(1, 10, 50, 200):
        with temporary_folder() as folder, _function(folder, helpers) as fun:
            samples = _compare(fun, helpers, effort)
        targets = (Target(_LIMIT),) if helpers <= _HELPERS else ()
        text = f"{helpers} {'helper' if helpers == 1 else 'helpers'}"
        yield Row(f"check that a function with {text} is unchanged", samples, targets, at=helpers)


def _compare(fun: Callable[..., Any], helpers: int, effort: Effort) -> Samples:
    from jitclient.capture.dump import capture

    captured = capture(fun)
    assert captured.unchanged(), "the check finds a change where none is"
    seconds = effort.seconds(0.05)
    takers = {OURS: functools.partial(per_call, captured.unchanged, seconds)}
    missing = {}
    if importlib.util.find_spec(_PICKLE):
        import cloudpickle

        cloudpickle.register_pickle_by_value(sys.modules[fun.__module__])
        takers[_PICKLE] = functools.partial(per_call, functools.partial(cloudpickle.dumps, fun), seconds)
    else:
        missing[_PICKLE] = f"not installed: {_PICKLE} (the extra `bench` brings it)"
    samples = interleave(takers, effort.rounds(21), f"unchanged, {helpers} helpers")
    samples.missing = missing
    return samples


@contextlib.contextmanager
def _function(folder: Path, helpers: int) -> Iterator[Callable[..., Any]]:
    """A function in a module of its own, which calls so many others."""
    lines = [f"def helper_{number}(x):\n    return x + {number}\n" for number in range(helpers)]
    calls = " + ".join(f"helper_{number}(x)" for number in range(helpers))
    path = folder / f"benchmark_helpers_{helpers}.py"
    path.write_text("\n".join([*lines, f"def total(x):\n    return {calls}\n"]))
    with loaded(path) as module:
        yield module.total


@contextlib.contextmanager
def loaded(path: Path) -> Iterator[ModuleType]:
    """A module that is imported from a file, and forgotten afterwards."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        yield module
    finally:
        del sys.modules[path.stem]
