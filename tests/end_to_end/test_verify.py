"""JITSERVER_VERIFY=1 finds what no key shows: here, an installed package that computes with the order of a set."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

PROGRAM = """
    import json
    import sys
    import jax
    import jax.numpy as jnp
    import numpy as np
    import numpyro.distributions as dist
    import jitclient

    def place(x):
        return x + dist.Normal.gather_pytree_data_fields().index("loc")

    def called(x):
        callback = (np.sin, np.cos)[dist.Normal.gather_pytree_data_fields().index("loc")]
        return jax.pure_callback(callback, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    def harmless(x):
        return jnp.where(x > 0, x, 2 * x), jax.pure_callback(np.tanh, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    found = {}
    for fun in (place, called, harmless):
        try:
            jitclient.jit(fun)(jnp.ones(3))
        except jitclient.ProgramsDiffer as error:
            found[fun.__name__] = str(error)
        else:
            found[fun.__name__] = None
    print(json.dumps(found))
"""

ORDER = "import numpyro.distributions as d; print(d.Normal.gather_pytree_data_fields())"


def _order(seed: int) -> str:
    done = subprocess.run(
        [sys.executable, "-c", ORDER], env={"PYTHONHASHSEED": str(seed)}, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.mark.slow
def test_a_difference_is_an_error_that_shows_it(
    new_daemon: Callable[..., Any], short_path: Any, run_script: Callable[..., Any]
) -> None:
    first = _order(1)
    same, other = (next(s for s in range(2, 40) if (_order(s) == first) is is_same) for is_same in (True, False))
    for seed in (same, other):
        address = f"unix:{short_path}/{seed}.sock"
        environment = {"PYTHONHASHSEED": str(seed), "JITSERVER_ADDRESS": address, "JITSERVER_VERIFY": "1"}
        with new_daemon(address, env={"PYTHONHASHSEED": "1"}):
            found = run_script(PROGRAM, env=environment)
        assert found["harmless"] is None
        if seed == same:
            assert found["place"] is found["called"] is None
        else:
            assert "place is another program when the daemon traces it" in found["place"]
            here, there = (line.split(":", 1)[1].strip() for line in found["place"].splitlines()[1:3])
            assert here != there
            assert "stablehlo.constant" in here
            assert "numpy.sin" in found["called"] or "numpy.cos" in found["called"]
