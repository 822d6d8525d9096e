"""Loops that read a value in each step, as people write them: from the hundredth step on."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.crew import crew
from benchmarks.measure import Effort
from benchmarks.result import Row, Target
from benchmarks.rivals import Caller, ours, plain_jax
from benchmarks.worker import Once

_FIRST = 200
"""Steps before the first sample, with pauses: a program that moves in is loaded meanwhile."""


def trained(weights: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """A step down the gradient of a linear model, and its loss."""
    import jax

    loss, slope = jax.value_and_grad(lambda w: ((x @ w - y) ** 2).mean())(weights)
    return weights - 0.01 * slope, loss


def acted(weights: Any, seen: Any) -> Any:
    """A policy of two layers."""
    import jax.numpy as jnp

    return jnp.argmax(jnp.tanh(seen @ weights[0]) @ weights[1])


def walked(place: Any, slope: Any) -> Any:
    """A step of elementwise work."""
    return place - 0.1 * slope


def training(caller: Caller, steps: int) -> Once:
    """Seconds for one step of a loop that adds up its loss."""
    step, random = caller.jit(trained), np.random.default_rng(0)
    x, y = (caller.put(random.normal(size=size).astype(np.float32)) for size in ((64, 16), (64,)))
    state = [caller.put(np.zeros(16, np.float32))]

    def one() -> float:
        state[0], loss = step(state[0], x, y)
        return float(loss)

    return _timed(one, steps)


def environment(caller: Caller, steps: int) -> Once:
    """Seconds for one step of a policy in an environment that is written in Python."""
    policy, random = caller.jit(acted), np.random.default_rng(0)
    weights = [caller.put(random.normal(size=size).astype(np.float32)) for size in ((4, 32), (32, 2))]
    seen = np.zeros(4, np.float32)

    def one() -> float:
        action = int(policy(weights, seen))
        seen[:] = 0.9 * seen + (0.1 if action else -0.1)
        return action

    return _timed(one, steps)


def matrices(caller: Caller, steps: int) -> Once:
    """Seconds for one step on matrices, of which one element is read."""
    step, place = caller.jit(walked), [caller.put(np.ones((256, 256), np.float32))]
    slope = caller.put(np.full((256, 256), 1e-3, np.float32))

    def one() -> float:
        place[0] = step(place[0], slope)
        return float(place[0][0, 0])

    return _timed(one, steps)


def sampler(caller: Caller, steps: int) -> Once:
    """Seconds for one step of NumPyro's NUTS, of which the acceptance is read, as its progress bar does."""
    import jax
    import numpyro
    from numpyro.infer import NUTS

    random = np.random.default_rng(0)
    x, y = random.normal(size=(64, 4)), random.integers(2, size=64)

    def model() -> None:
        weights = numpyro.sample("weights", numpyro.distributions.Normal(0, 1).expand([4]).to_event(1))
        numpyro.sample("y", numpyro.distributions.Bernoulli(logits=x @ weights), obs=y)

    kernel = NUTS(model)
    state = [kernel.init(jax.random.key(0), _FIRST, None, (), {})]
    step = caller.jit(lambda state: kernel.sample(state, (), {}))

    def one() -> float:
        state[0] = step(state[0])
        return float(state[0].mean_accept_prob)

    return _timed(one, steps)


def memory(_: Caller) -> Once:
    """MiB that the client holds, its daemon's not among them."""
    status = Path("/proc/self/status")
    return lambda: int(status.read_text().partition("VmRSS:")[2].split()[0]) / 1024


def _timed(one: Any, steps: int) -> Once:
    for _ in range(min(steps, _FIRST)):
        assert np.isfinite(one())
        time.sleep(0.005)

    def once() -> float:
        before = time.perf_counter()
        for _ in range(steps):
            one()
        return (time.perf_counter() - before) / steps

    return once


def rows(effort: Effort) -> Iterator[Row]:
    """The rows of DESIGN's table on loops that read a value in each step."""
    loops = {
        "adds up its loss": training,
        "a policy in Python": environment,
        "reads an element": matrices,
        "NUTS of NumPyro": sampler,
    }
    with crew((ours, plain_jax)) as contenders:
        for name, loop in loops.items():
            samples = contenders.compare(f"loops: {name}", loop, effort.rounds(15), steps=effort.one(1000, 20))
            yield Row(f"a step of a loop: {name}", samples, (Target(1.1, times=plain_jax.NAME),))
        samples = contenders.compare("loops: memory", memory, 1)
        yield Row("memory of the client after these loops", samples, unit="MiB")
