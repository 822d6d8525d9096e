"""A run does not look up again the facts that a helper has looked up, unless something changed."""

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


@pytest.mark.slow
def test_what_is_as_it_was_is_not_looked_through_again(run_script: Any) -> None:
    assert run_script(FORKED.format(change="pass")) == [[], ""]


CHANGES = {
    "import jax; jax.numpy.linalg.norm = changed": "jax.numpy.linalg.norm",
    "import jax; jax.core.Tracer.clip = changed": f"{jax.core.Tracer.__module__}.Tracer.clip",
}


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
def test_what_the_run_has_changed_is_seen(change: str, run_script: Any) -> None:
    (looked, refused) = run_script(FORKED.format(change=change))
    assert refused == f"the program changed an installed package: {CHANGES[change]}"
    assert len(looked) == 1
