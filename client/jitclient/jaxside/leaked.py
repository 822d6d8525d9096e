"""Leaked tracers, for which JAX raises `UnexpectedTracerError` when one is used."""

import sys
from collections.abc import Sequence
from typing import Any

from jitclient.jaxside.avals import abstract
from jitclient.jaxside.own_jit import own_jit
from jitclient.wire.messages import Spec


def refuse(leaf: Any) -> None:
    """Raises JAX's error for an argument that is a leaked tracer."""
    own_jit(lambda leaf: leaf)(leaf)


def refuse_used(jitted: Any, n_inputs: int, specs: Sequence[Spec]) -> None:
    """Raises JAX's error if a trace used a leaked tracer. A call would raise, but compilation ahead of time treats the
    tracer as another argument.
    """
    if n_inputs > len(specs):
        jitted(*(sys.modules["jax"].numpy.zeros(leaf.shape, leaf.dtype) for leaf in map(abstract, specs)))
