"""Runs programs in this process, and writes what each gave as a line of JSON: `worker.py plain|served FILE NAME...`.

A program is a function `case_*` of a module in `programs`, which takes `jit`: `plain` gives it that of jax, `served`
that of jitclient. The lines go to a file of their own, as programs and notices print on the standard streams.
"""

import contextlib
import dataclasses
import enum
import importlib
import io
import json
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

PROGRAMS = Path(__file__).parent / "programs"


def shown(value: Any) -> Any:
    """A value as JSON, to the last bit: with types, dtypes, shapes and weak types."""
    if value is None or type(value) in (str, bool):
        return value
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return _array(value)
    if isinstance(value, (enum.Enum, str, int, bytes, complex, type(...))):
        return [type(value).__name__, repr(value)]
    if isinstance(value, float):
        return ["float", value.hex()]
    if isinstance(value, Mapping):
        return [type(value).__name__, *[[shown(key), shown(item)] for key, item in value.items()]]
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, *map(shown, value)]
    if isinstance(value, (set, frozenset)):
        return [type(value).__name__, *sorted(map(repr, value))]
    if dataclasses.is_dataclass(value):
        return [type(value).__name__, *[shown(getattr(value, field.name)) for field in dataclasses.fields(value)]]
    raise TypeError(f"a program returned a {type(value).__qualname__}")


def _array(value: Any) -> Any:
    weak = bool(getattr(value, "weak_type", False))
    data = np.asarray(sys.modules["jax"].random.key_data(value) if str(value.dtype).startswith("key<") else value)
    return ["array", str(value.dtype), list(value.shape), weak, data.tobytes().hex(), repr(data.tolist())]


def outcome(program: Callable[[Any], Any], jit: Any) -> dict[str, Any]:
    """Return a program's value or exception."""
    quiet = io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
        warnings.simplefilter("ignore")
        try:
            return {"returns": shown(program(jit))}
        except Exception as error:
            return {"raises": type(error).__name__, "text": str(error)[:2000]}


def _work_of_daemon() -> tuple[int, ...] | None:
    """How often the daemon has traced, its clients have, and something ran without it; none if it does not say."""
    from jitclient.core.settings import Settings
    from jitclient.session import process
    from jitclient.session.handshake import ask
    from jitclient.wire.introspection import Status
    from jitclient.wire.messages import Verb

    with contextlib.suppress(Exception):  # what this process has yet to tell
        process.session().send_report()
        process.session().ask(Verb.STATUS, None, Status)
    try:
        status = ask(Settings.from_environment(), Verb.STATUS, None, Status)
    except Exception:  # it is broken, or there is none
        return None
    return status.traces, status.client_traces, status.local_runs


def main(how: str, file: str, *names: str) -> None:
    sys.path.insert(0, str(PROGRAMS))
    if how == "served":
        from jitclient import jit

        work: Callable[[], Any] = _work_of_daemon
    else:
        from jax import jit

        def work() -> Any:
            return None

    with open(file, "w") as lines:
        before = work()
        for name in names:
            module, _, label = name.partition(".")
            found = outcome(getattr(importlib.import_module(module), label), jit)
            after = work()
            warm = before is not None and before == after
            lines.write(json.dumps({"name": name, **found, "warm": warm}) + "\n")
            lines.flush()
            before = after


if __name__ == "__main__":
    main(*sys.argv[1:])
