"""The rivals that are compared, one module each.

A rival has
- `NAME`, as tables show it, and `NEEDS`, the packages without which it cannot run; perhaps `PROGRAMS`, those likewise,
  by name, with their paths;
- `serve(folder)`: a context manager around its server, which gives what the environment of its clients must say;
- `connect()`: a context manager in the client's process, which gives a `Caller`.
"""

import contextlib
import dataclasses
import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np


def look(result: Any) -> Any:
    """The numpy array, or the list of them, that a result is."""
    return [np.asarray(each) for each in result] if isinstance(result, (list, tuple)) else np.asarray(result)


def same(value: Any) -> Any:
    """For a rival whose arrays are numpy's: nothing to put, nothing to wait for."""
    return value


@dataclasses.dataclass(frozen=True)
class Caller:
    """How a rival's client calls functions, under JAX's names.

    Attributes:
        jit: a function to one that runs where the rival runs it.
        put: an array to one that stays there, where the rival can keep it.
        wait: returns once a result is computed.
        look: a result's numpy array, or list of arrays.
        spread: the results of a function for the items of a list, from two worker processes; only of pools.
    """

    jit: Callable[[Callable[..., Any]], Callable[..., Any]]
    put: Callable[[Any], Any] = same
    wait: Callable[[Any], Any] = same
    look: Callable[[Any], Any] = look
    spread: Callable[[Callable[[Any], Any], list[Any]], list[Any]] | None = None


@contextlib.contextmanager
def no_server(folder: Path) -> Iterator[dict[str, str]]:
    """For a rival that needs no server, or whose client starts it."""
    yield {}


def why_missing(rival: ModuleType) -> str:
    """Why a rival cannot run here; empty if it can."""
    gone = [name for name, path in getattr(rival, "PROGRAMS", {}).items() if path is None]
    if gone:
        return f"not installed: {', '.join(gone)}"
    absent = [name for name in rival.NEEDS if importlib.util.find_spec(name) is None]
    return f"not installed: {', '.join(absent)} (the extra `bench` brings it)" if absent else ""
