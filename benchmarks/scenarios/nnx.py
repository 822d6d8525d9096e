"""A training step on Flax NNX objects: `jitclient.nnx.jit` beside `flax.nnx.jit`, each step's loss waited for."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.crew import crew
from benchmarks.measure import Effort, per_call
from benchmarks.result import Row
from benchmarks.rivals import Caller, ours, plain_jax
from benchmarks.worker import Once


def training_step(caller: Caller, layers: int, seconds: float) -> Once:
    """A multilayer perceptron with Adam and a metric, changed in place."""
    import jax
    import optax
    from flax import nnx

    import jitclient.nnx

    def step(model: Any, optimizer: Any, metrics: Any, x: Any) -> Any:
        def loss_of(model: Any) -> Any:
            return (model(x) ** 2).mean()

        loss, gradients = nnx.value_and_grad(loss_of)(model)
        optimizer.update(model, gradients)
        metrics.update(loss=loss)
        return loss

    rngs = nnx.Rngs(0)
    model = nnx.Sequential(*(nnx.Linear(16, 16, rngs=rngs) for _ in range(layers)))
    metrics = nnx.MultiMetric(loss=nnx.metrics.Average("loss"))
    state = model, nnx.Optimizer(model, optax.adamw(1e-4), wrt=nnx.Param), metrics
    jitted = (nnx.jit if caller.jit is jax.jit else jitclient.nnx.jit)(step)
    x = caller.put(np.ones((4, 16), np.float32))
    return lambda: per_call(lambda: caller.look(jitted(*state, x)), seconds)


def rows(effort: Effort) -> Iterator[Row]:
    """A small network, and one of 30 layers: 11 and 184 arrays of state."""
    with crew((ours, plain_jax)) as contenders:
        for layers in effort.sizes(1, 30, quick=(1, 2)):
            sizes = {"layers": layers, "seconds": effort.seconds(0.5)}
            label = f"NNX training step, {layers} {'layer' if layers == 1 else 'layers'}"
            sizes = {"layers": layers, "seconds": effort.seconds(0.5)}
            yield Row(label, contenders.compare(label, training_step, effort.rounds(11), **sizes))
