"""A profile of PPO shows what XLA ran, on the daemon as in plain JAX."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from jax.profiler import ProfileData

EXAMPLES = Path(__file__).parents[2] / "examples"

PROFILED = """
    import sys

    import jax
    import numpy as np

    log, library, examples = sys.argv[1:]
    sys.path.insert(0, examples)
    import ppo

    import jitclient

    train = {"jax": jax, "jitclient": jitclient}[library].jit(ppo.make_train(updates=1))
    key = jax.random.key(0)
    _, (lengths, losses) = train(key, 1e-3)
    losses = np.asarray(losses)
    with jax.profiler.trace(log):
        again = np.asarray(train(key, 1e-3)[1][1])
    assert (again == losses).all()
    print(losses.tolist())
"""


def operations(log: Path) -> Counter[tuple[str, str]]:
    """Return how often each operation of XLA ran, by the names of its module and its own, on whatever host."""
    found: Counter[tuple[str, str]] = Counter()
    for path in log.rglob("*.xplane.pb"):
        events = (
            event for plane in ProfileData.from_file(str(path)).planes for line in plane.lines for event in line.events
        )
        for event in events:
            stats = dict(event.stats)
            if "hlo_op" in stats:
                found[stats["hlo_module"], event.name] += 1
    return found


PLACED: Counter[tuple[str, str]] = Counter([("jit_stage", "copy")])
"""The daemon makes the random key from its words, which come with the call; in plain JAX, the key is there before."""


@pytest.mark.timeout(600)
def test_ppo_has_the_operations_of_plain_jax(own: Any, tmp_path: Path) -> None:
    plain, ours = tmp_path / "plain", tmp_path / "ours"
    with own.serving():
        losses = own.run(PROFILED, str(plain), "jax", str(EXAMPLES))
        assert own.run(PROFILED, str(ours), "jitclient", str(EXAMPLES)) == losses
        assert own.counts()["traces"] == 1
    wanted = operations(plain)
    assert {module for module, _ in wanted} == {"jit_train"}
    assert operations(ours) == wanted + PLACED
