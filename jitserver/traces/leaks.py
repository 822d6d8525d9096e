"""Leaked tracers: values of a trace that traced code stored in captured objects."""

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

from jitclient.codec.capture import Loaded
from jitclient.codec.tracers import holds_tracer
from jitclient.errors import CaptureError
from jitclient.local_jax.avals import spec_of_aval
from jitclient.local_jax.interop import is_tracer
from jitclient.trees import tree
from jitclient.wire.messages import Escape, Spec


def warn_of_kept(loaded: Loaded, name: str) -> bool:
    """Warns of tracers in captured objects, which `jax.jit` would leave in the caller's; returns if there are any."""
    kept = next(_kept(loaded), None)
    if kept is None:
        return False
    then = "As with jax.jit, there is a tracer now, which is useless outside of the trace"
    if kept.name is None:
        then = (
            "It is traced on the daemon, so in this process nothing has changed (with jax.jit there would be a tracer, "
            "which is useless outside of the trace)"
        )
    warnings.warn(
        f"{name} keeps a value of its trace in {kept.where}. {then}: return the value instead",
        RuntimeWarning,
        stacklevel=2,
    )
    return True


def escapes(loaded: Loaded) -> tuple[Escape, ...]:
    """The same values, as far as the client can put tracers where `jax.jit` would leave them."""
    found = []
    for kept in _kept(loaded):
        if kept.name is not None:
            leaves, shape = tree.flatten(kept.value)
            with contextlib.suppress(CaptureError):  # a class that only this trace has
                structure = tree.encode(tree.structure_of(shape), loaded.index_of)
                found.append(Escape(kept.holder, kept.name, structure, tuple(map(_spec, leaves))))
    return tuple(found)


class _Kept(NamedTuple):
    """A leaked tracer: the object of the capture that has it, its name there, and a description of the place. The name
    is None if the tracer is inside a container of the capture, and "" for a variable of a closure.
    """

    holder: int
    name: str | None
    value: Any
    where: str


def _kept(loaded: Loaded) -> Iterator[_Kept]:
    containers = {id(made) for op, made in loaded.made if op in _CONTAINERS}
    for holder, (op, made) in enumerate(loaded.made):
        for name, value, where in _held(op, made):
            is_container = id(value) in containers
            if holds_tracer(value) and not (op == "cell" and is_container):  # the container itself is reported
                yield _Kept(holder, None if is_container else name, value, where)


_CONTAINERS = ("list", "dict", "set", "typed_dict")


def _held(op: str, made: Any) -> Iterator[tuple[str, Any, str]]:
    """The contents of an object of a capture: names, values, and descriptions of the places."""
    if op == "namespace":
        yield from ((name, value, f"the global {name!r}") for name, value in list(vars(made).items()))
    elif op in ("new", "bare"):
        attributes, kind = getattr(made, "__dict__", {}), type(made).__qualname__
        yield from ((name, value, f"{name!r} of a {kind}") for name, value in list(attributes.items()))
    elif op == "cell":
        with contextlib.suppress(ValueError):  # it is empty
            yield "", made.cell_contents, "a variable of a closure"
    elif op in _CONTAINERS:
        yield "", made, f"a {type(made).__name__} that it reaches"


def _spec(leaf: Any) -> Spec:
    return spec_of_aval(leaf.aval) if is_tracer(leaf) else Spec((), "float32")
