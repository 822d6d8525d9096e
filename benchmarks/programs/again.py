"""Runs a script of plain JAX, then again and again what in it defines nothing, with jits that are kept, and prints how
many seconds the last took: without imports, traces and compilation, its arithmetic is left.
"""

import ast
import contextlib
import io
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import equinox
import jax
import optax
from flax import nnx

RUNS = 4
_KEPT = ((jax, "jit"), (nnx, "jit"), (equinox, "filter_jit"), (optax, "adamw"))
"""Functions that make jits, or that are part of a graph that jits are called with."""
_COMPILED = "/jax/core/compile/backend_compile_duration"
_DEFINITIONS = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)


class Kept:
    """A function that returns what its first, second, third, ... call since `rewind` returned the first time."""

    def __init__(self, own: Callable[..., Any]) -> None:
        self._own, self._made, self._next = own, list[Any](), 0

    def rewind(self) -> None:
        self._next = 0

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        if self._next == len(self._made):
            self._made.append(self._own(*arguments, **options))
        self._next += 1
        return self._made[self._next - 1]


def main(script: str) -> None:
    """Runs it, and prints the seconds."""
    tree, there = ast.parse(Path(script).read_text()), {"__name__": "__main__"}
    rest = ast.Module([node for node in tree.body if not isinstance(node, _DEFINITIONS)], [])
    compiled = list[str]()
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        exec(compile(tree, script, "exec"), there)
        jax.monitoring.register_event_duration_secs_listener(
            lambda event, duration, **_: compiled.append(event) if event == _COMPILED else None
        )
        kept = [stack.enter_context(mock.patch.object(*place, Kept(getattr(*place)))) for place in _KEPT]
        for _ in range(RUNS):
            compiled.clear()
            for each in kept:
                each.rewind()
            start = time.perf_counter()
            exec(compile(rest, script, "exec"), there)
            seconds = time.perf_counter() - start
    if compiled:
        raise RuntimeError(f"the last run of {script} has compiled: its time is not that of its arithmetic alone")
    print(seconds)


if __name__ == "__main__":
    main(sys.argv.pop(1))
