"""Leaked tracers: errors for tracers that are used after their trace has finished, as JAX raises them."""

import sys
from collections.abc import Sequence
from typing import Any

from jitclient.jaxside.avals import abstract
from jitclient.jaxside.original_jit import original_jit
from jitclient.wire.messages import Spec


def raise_leaked_error(leaf: Any) -> None:
    """Raise JAX's `UnexpectedTracerError` for an argument that is a leaked tracer."""
    original_jit(lambda leaf: leaf)(leaf)


def raise_if_used(jitted: Any, n_inputs: int, specs: Sequence[Spec]) -> None:
    """Raise JAX's `UnexpectedTracerError` if a trace used a leaked tracer.

    Compilation ahead of time does not raise it, but treats the tracer as another input. A call does raise it, so this
    function calls the jitted function if it has more inputs than arguments.
    """
    if n_inputs > len(specs):
        jitted(*(sys.modules["jax"].numpy.zeros(leaf.shape, leaf.dtype) for leaf in map(abstract, specs)))
