"""Profiles of a training program in a fresh process, plain and on the daemon."""

from collections.abc import Callable
from typing import Any

import pytest

TRAINING = """
    import json, pathlib, sys
    from jax.profiler import ProfileData, StepTraceAnnotation, start_trace, stop_trace  # before jitclient
    import jax
    import jax.numpy as jnp
    import numpy as np

    if sys.argv[1] == "ours":
        import jitclient
        jitclient.install()

    @jax.jit
    def train(w, x, y):
        def loss_of(w):
            return jnp.mean((jnp.tanh(x @ w["in"]) @ w["out"] - y) ** 2)
        loss, gradient = jax.value_and_grad(loss_of)(w)
        return jax.tree.map(lambda w, g: w - 0.1 * g, w, gradient), loss

    random = np.random.default_rng(0)
    w = {"in": random.normal(size=(8, 16)).astype("f4"), "out": random.normal(size=(16,)).astype("f4")}
    x, y = random.normal(size=(32, 8)).astype("f4"), random.normal(size=32).astype("f4")
    w, loss = train(w, x, y)
    jax.block_until_ready(loss)
    start_trace(sys.argv[1])
    for number in range(3):
        with StepTraceAnnotation("training", step_num=number):
            w, loss = train(w, x, y)
    jax.block_until_ready(loss)
    stop_trace()

    events = [
        (path.name, event.name, dict(event.stats))
        for path in pathlib.Path(sys.argv[1]).rglob("*.xplane.pb")
        for plane in ProfileData.from_file(str(path)).planes
        for line in plane.lines
        for event in line.events
    ]
    steps = sorted((path, stats["step_num"]) for path, name, stats in events if name == "training")
    operations = sorted({(path, name) for path, name, stats in events if stats.get("hlo_module") == "jit_train"})
    print(json.dumps([len({path for path, *_ in events}), steps, operations]))
"""


@pytest.mark.slow
@pytest.mark.usefixtures("daemon")
def test_a_training_program_has_the_same_operations(run_script: Callable[..., Any]) -> None:
    _, steps, plain = run_script(TRAINING, "plain")
    hosts, both, ours = run_script(TRAINING, "ours")
    assert hosts == 2
    [here] = {path for path, _ in plain}
    [there] = {path for path, _ in ours}  # none ran in the process
    assert there != here
    assert len(plain) > 5
    assert [name for _, name in ours] == [name for _, name in plain]
    assert steps == [[here, 0], [here, 1], [here, 2]]
    assert sorted(both) == sorted(steps + [[there, number] for number in range(3)])
