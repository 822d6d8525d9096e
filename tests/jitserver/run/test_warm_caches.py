"""Look-ups of a helper before it forks are not repeated in a run, and changes by a run are still seen."""

from collections.abc import Callable
from typing import Any

import jax
import pytest

FORKED = """
    import json, os
    import jax.numpy as jnp
    from jitclient.capture.ambient import patches
    from jitclient.capture.dump import capture
    from jitclient.errors import CaptureError
    from jitserver.run.imports import fill_caches

    fill_caches()
    reads, writes = os.pipe()
    if os.fork():
        os.close(writes)
        print(os.read(reads, 1 << 16).decode())
        raise SystemExit

    looked, own = [], patches._changed
    def changed_in(contents, space, names):
        looked.append(space.place(""))
        return own(contents, space, names)
    patches._changed = changed_in

    def changed(x):
        return x * 3
    {change}
    def used(x):
        return jnp.sin(x)
    try:
        capture(used)
        refused = ""
    except CaptureError as error:
        refused = str(error)
    os.write(writes, json.dumps([looked, refused]).encode())
    os._exit(0)
"""


@pytest.fixture
def forked(run_script: Callable[..., Any]) -> Callable[[str], Any]:
    """Runs a change and then a capture in a forked process; returns the modules that it looked through, and why it was
    refused.
    """

    def run(change: str) -> Any:
        return run_script(FORKED.format(change=change))

    return run


@pytest.mark.slow
def test_what_is_as_it_was_is_not_looked_through_again(forked: Callable[[str], Any]) -> None:
    assert forked("pass") == [[], ""]


CHANGES = {
    "import jax; jax.numpy.linalg.norm = changed": "jax.numpy.linalg.norm",
    "import jax; jax.core.Tracer.clip = changed": f"{jax.core.Tracer.__module__}.Tracer.clip",
}


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
def test_what_the_run_has_changed_is_seen(change: str, forked: Callable[[str], Any]) -> None:
    (looked, refused) = forked(change)
    assert refused == f"the program changed an installed package: {CHANGES[change]}"
    assert len(looked) == 1
