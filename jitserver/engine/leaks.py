"""Values of a trace that outlive it, because traced code kept them somewhere. JAX calls them leaked tracers."""

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import jax

from jitclient.capture import Loaded
from jitclient.local_jax.avals import abstract
from jitclient.wire.messages import Spec


def refuse_used(jitted: Any, n_inputs: int, leaves: Sequence[Spec]) -> None:
    """Raises JAX's own error for a value that escaped from a trace inside, and was used. A call would meet it; what is
    made ahead of time takes the value for one more argument.
    """
    if n_inputs > len(leaves):
        jitted(*(jax.numpy.zeros(leaf.shape, leaf.dtype) for leaf in map(abstract, leaves)))


def warn_of_kept(loaded: Loaded, name: str) -> bool:
    """Warns of values that lie in captured objects now: under `jax.jit` they would lie in the caller's. Says if so."""
    kept = next(_kept(loaded), None)
    if kept is not None:
        warnings.warn(
            f"{name} keeps a value of its trace in {kept}. It is traced on the daemon, so in this process nothing has "
            "changed (with jax.jit there would be a tracer, of no use outside of the trace): return the value instead",
            RuntimeWarning,
            stacklevel=2,
        )
    return kept is not None


def _kept(loaded: Loaded) -> Iterator[str]:
    for op, made in loaded.made:
        if op == "namespace":
            yield from (f"the global {name!r}" for name, value in list(vars(made).items()) if _has_tracer(value))
        elif op in ("new", "bare"):
            attributes = getattr(made, "__dict__", {})
            kind = type(made).__qualname__
            yield from (f"{name!r} of a {kind}" for name, value in list(attributes.items()) if _has_tracer(value))
        elif op in ("list", "dict", "set", "typed_dict") and _has_tracer(made):
            yield f"a {type(made).__name__} that it reaches"


def _has_tracer(value: Any) -> bool:
    kind = type(value)  # never isinstance: to what did not travel, that is a use
    if kind in (list, tuple, set):
        return any(map(_is_tracer, value))
    return any(map(_is_tracer, value.values())) if kind is dict else issubclass(kind, jax.core.Tracer)


def _is_tracer(value: Any) -> bool:
    return issubclass(type(value), jax.core.Tracer)
