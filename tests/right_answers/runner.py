"""Runs the cases of programs and prints what each gave, as JSON: `runner.py plain|served FOLDER [PROGRAM...]`.

A case is a function `case_*` of a program. Its parameters, such as `jit` and `device_put`, are names of what `plain`
takes from jax and `served` from jitclient.
"""

import contextlib
import importlib
import inspect
import io
import json
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np


def outcome(case: Callable[..., Any], library: ModuleType) -> dict[str, Any]:
    """Return a case's value or exception, in a form that two processes can compare."""
    given = [getattr(library, name) for name in inspect.signature(case).parameters]
    quiet = io.StringIO()  # what programs print is not what they answer; a case may redirect it itself
    with warnings.catch_warnings(), contextlib.redirect_stdout(quiet):
        warnings.simplefilter("ignore")
        try:
            return {"returns": rendered(case(*given))}
        except Exception as error:
            return {"raises": type(error).__name__, "text": str(error)[:2000]}


def rendered(value: Any) -> Any:
    """A value as JSON: types, dtypes and shapes included, dictionaries in the order of their keys."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, Mapping):
        return {"dict": sorted([repr(key), rendered(item)] for key, item in value.items())}
    if isinstance(value, (set, frozenset)):
        return {"set": sorted(map(repr, value))}
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, *map(rendered, value)]
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        weak = bool(getattr(value, "weak_type", False))
        data = sys.modules["jax"].random.key_data(value) if str(value.dtype).startswith("key<") else value
        array = np.asarray(data)
        return {"array": [str(value.dtype), list(value.shape), weak, _place(value), repr(array.tolist())]}
    raise TypeError(f"a case returned a {type(value).__qualname__}: return arrays, numbers, strings, or trees of them")


def _place(array: Any) -> Any:
    """Where an array of several devices, or of another than the first, has its parts."""
    sharding = getattr(array, "sharding", None)
    parts = {} if sharding is None else sharding.devices_indices_map(array.shape)
    if [device.id for device in parts] in ([], [0]):
        return None
    kind = f"{type(sharding).__name__} {getattr(sharding, 'spec', '')} {getattr(sharding, 'memory_kind', '')}"
    return [kind, array.committed, sorted((device.id, str(index)) for device, index in parts.items())]


def main(how: str, folder: str, *programs: str) -> None:
    sys.path.insert(0, folder)
    counted: dict[str, int] = {"traced_here": 0, "ran_here": 0, "traced_there": 0}
    traces_there: Callable[[], int] = int
    if how == "served":
        import jitclient as library
        from jitclient.core.settings import Settings
        from jitclient.session.handshake import ask
        from jitclient.session.session import Session
        from jitclient.wire.introspection import Status
        from jitclient.wire.messages import Verb

        def traces_there() -> int:
            return ask(Settings.from_environment(), Verb.STATUS, None, Status).traces

        _count_calls(Session, "count_client_trace", counted, "traced_here")
        _count_calls(Session, "count_local_run", counted, "ran_here")
    else:
        import jax as library  # type: ignore[no-redef]
    found: dict[str, Any] = {}
    for name in programs or sorted(path.stem for path in Path(folder).glob("*.py")):
        program = importlib.import_module(name)
        for label, case in list(vars(program).items()):
            if label.startswith("case_"):
                before = traces_there()
                counted.update(traced_here=0, ran_here=0)
                answer = outcome(case, library)
                counted["traced_there"] = traces_there() - before
                found[f"{name}.{label}"] = {**answer, **counted}
    print(json.dumps(found))


def _count_calls(owner: Any, name: str, counted: dict[str, int], label: str) -> None:
    real = getattr(owner, name)

    def counting(*arguments: Any) -> Any:
        counted[label] += 1
        return real(*arguments)

    setattr(owner, name, counting)


if __name__ == "__main__":
    main(*sys.argv[1:])
