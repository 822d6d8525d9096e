"""The calls that the docstring examples of JAX make: each public function, with the arguments of its own example."""

import contextlib
import dataclasses
import doctest
import importlib
import inspect
import types
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from benchmarks.quiet import quietly

MODULES = (
    "jax.numpy",
    "jax.numpy.fft",
    "jax.numpy.linalg",
    "jax.lax",
    "jax.nn",
    "jax.nn.initializers",
    "jax.random",
    "jax.scipy.cluster.vq",
    "jax.scipy.fft",
    "jax.scipy.integrate",
    "jax.scipy.interpolate",
    "jax.scipy.linalg",
    "jax.scipy.ndimage",
    "jax.scipy.optimize",
    "jax.scipy.signal",
    "jax.scipy.sparse.linalg",
    "jax.scipy.spatial.transform",
    "jax.scipy.special",
    "jax.scipy.stats",
)


@dataclasses.dataclass(frozen=True)
class Call:
    """A call of a public function in an example."""

    function: Callable[..., Any]
    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def modules() -> Iterator[types.ModuleType]:
    """The modules that this jax has, those of single distributions among them."""
    for name in MODULES:
        with contextlib.suppress(ImportError):
            module = importlib.import_module(name)
            yield module
            if name == "jax.scipy.stats":
                yield from (each for _, each in inspect.getmembers(module, inspect.ismodule) if name in each.__name__)


def functions(module: types.ModuleType) -> dict[str, Callable[..., Any]]:
    """The public functions of a module by their full names."""
    return {
        f"{module.__name__}.{name}": value
        for name, value in vars(module).items()
        if not name.startswith("_") and callable(value) and not isinstance(value, type) and hasattr(value, "__doc__")
    }


def calls_in_example(name: str, function: Callable[..., Any]) -> list[Call]:
    """Return the calls of the function in its docstring's examples; none if no example calls it by name."""
    examples = doctest.DocTestParser().get_examples(inspect.getdoc(function) or "")
    module = importlib.import_module(name.rpartition(".")[0])
    recorded: list[Call] = []
    names = {"jax": jax, "jnp": jax.numpy, "lax": jax.lax, "np": np, "random": jax.random}
    with _recording(module, name.rpartition(".")[2], function, recorded, names), np.printoptions():
        for example in examples:
            with contextlib.suppress(Exception), quietly():
                exec(compile(example.source, f"<{name}>", "single"), names)
    return [Call(function, name, args, kwargs) for args, kwargs in recorded]


@contextlib.contextmanager
def _recording(
    module: types.ModuleType, name: str, function: Callable[..., Any], recorded: list[Any], names: dict[str, Any]
) -> Iterator[None]:
    depth = 0

    def record(*args: Any, **kwargs: Any) -> Any:
        nonlocal depth
        if depth == 0 and not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((args, kwargs))):
            recorded.append((args, kwargs))
        depth += 1
        try:
            return function(*args, **kwargs)
        finally:
            depth -= 1

    for attribute, value in vars(function).items() if hasattr(function, "__dict__") else ():
        with contextlib.suppress(AttributeError):
            setattr(record, attribute, value)
    names[name] = record
    setattr(module, name, record)
    try:
        yield
    finally:
        setattr(module, name, function)
