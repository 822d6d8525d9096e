"""Writing a function as a capture, and making it again; cloudpickle by value is the other way to do both."""

import functools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks.measure import Effort, Samples, interleave, per_call
from benchmarks.processes import temporary_folder
from benchmarks.result import OURS, Row
from benchmarks.scenarios.unchanged import loaded

_RIVAL = "cloudpickle"

_HELPERS = "\n".join(f"def helper_{n}(x):\n    return x + {n}\n" for n in range(50))
PROGRAMS = {
    "50 helpers": f"{_HELPERS}\ndef fun(x):\n    return {' + '.join(f'helper_{n}(x)' for n in range(50))}\n",
    "a table of 10,000 numbers": "TABLE = {n: n / 2 for n in range(10_000)}\ndef fun(x):\n    return TABLE[3] * x\n",
    "a linen model and an optax chain": """
import flax.linen as nn
import jax
import optax


class Model(nn.Module):
    width: int = 64

    @nn.compact
    def __call__(self, x):
        for _ in range(3):
            x = nn.relu(nn.Dense(self.width)(x))
        return nn.Dense(1)(x)


model = Model()
optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(optax.cosine_decay_schedule(1e-3, 100)))


def fun(params, state, x, y):
    loss, grads = jax.value_and_grad(lambda p: ((model.apply(p, x) - y) ** 2).mean())(params)
    updates, state = optimizer.update(grads, state, params)
    return optax.apply_updates(params, updates), state, loss
""",
}


def rows(effort: Effort) -> Iterator[Row]:
    """Functions that reach many others, much data, and two libraries."""
    with temporary_folder() as folder:
        for what, source in PROGRAMS.items():
            with loaded(_written(folder, source)) as module:
                for step, samples in _compare(module, effort).items():
                    yield Row(f"{step} a function with {what}", samples, ())


def _written(folder: Path, source: str) -> Path:
    path = folder / "benchmark_captured.py"
    path.write_text(source)
    return path


def _compare(module: ModuleType, effort: Effort) -> dict[str, Samples]:
    from jitclient.capture.dump import capture
    from jitclient.capture.load import load

    made = capture(module.fun)
    writers: dict[str, Callable[[], Any]] = {OURS: functools.partial(capture, module.fun)}
    readers: dict[str, Callable[[], Any]] = {OURS: functools.partial(load, made.payload, made.locations)}
    try:
        import cloudpickle
    except ImportError:
        pass
    else:
        cloudpickle.register_pickle_by_value(module)
        writers[_RIVAL] = functools.partial(cloudpickle.dumps, module.fun)
        readers[_RIVAL] = functools.partial(cloudpickle.loads, cloudpickle.dumps(module.fun))
    return {"write": _timed(writers, effort), "make again": _timed(readers, effort)}


def _timed(takers: Mapping[str, Callable[[], Any]], effort: Effort) -> Samples:
    seconds = effort.seconds(0.2)
    timed = {name: functools.partial(per_call, taker, seconds) for name, taker in takers.items()}
    return interleave(timed, effort.rounds(11), "capture")
