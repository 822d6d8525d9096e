"""Programs with callbacks: a training step that prints its loss, and a print alone, each waited for."""

import contextlib
import io
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.crew import crew
from benchmarks.measure import Effort, per_call
from benchmarks.result import Row
from benchmarks.rivals import Caller, ours, plain_jax
from benchmarks.worker import Once


def printing_step(caller: Caller, width: int, seconds: float) -> Once:
    """Gradient descent on three square layers, which prints its loss."""
    import jax
    import jax.numpy as jnp

    @caller.jit
    def step(weights: Any, x: Any) -> Any:
        def loss_of(weights: Any) -> Any:
            hidden = x
            for layer in weights:
                hidden = jnp.tanh(hidden @ layer)
            return (hidden**2).mean()

        loss, gradients = jax.value_and_grad(loss_of)(weights)
        jax.debug.print("loss {loss}", loss=loss)
        return [layer - 0.1 * gradient for layer, gradient in zip(weights, gradients, strict=True)], loss

    random = np.random.RandomState(0)
    weights = [caller.put(random.normal(size=(width, width)).astype(np.float32) / width) for _ in range(3)]
    x = caller.put(random.normal(size=(width, width)).astype(np.float32))

    def once() -> None:
        nonlocal weights
        weights, loss = step(weights, x)
        caller.look(loss)
        jax.effects_barrier()

    def quiet() -> float:
        with contextlib.redirect_stdout(io.StringIO()):
            return per_call(once, seconds)

    return quiet


def rows(effort: Effort) -> Iterator[Row]:
    """A step that does nearly nothing, and one of some milliseconds."""
    with crew((ours, plain_jax)) as contenders:
        for width in effort.sizes(4, 384, quick=(2, 4)):
            label = f"step with a debug.print, {width}x{width}"
            sizes = {"width": width, "seconds": effort.seconds(0.5)}
            yield Row(label, contenders.compare(label, printing_step, effort.rounds(11), **sizes))
