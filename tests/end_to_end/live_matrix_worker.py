"""Run in a fresh process: calls all kinds of a folder through the daemon. See `test_live_matrix.py`."""

import importlib
import json
import sys
import traceback
from pathlib import Path

import jitclient
from jitclient.core.settings import settings
from jitclient.session import process
from jitclient.session.handshake import ask
from jitclient.wire.introspection import Status
from jitclient.wire.messages import Verb

COUNTED = ("traces", "compiles", "hits", "client_traces", "local_runs")


def main():
    folder, out = Path(sys.argv[1]), Path(sys.argv[2])
    kinds = sorted(path.name for path in folder.iterdir())
    sys.path[:0] = [str(folder / kind) for kind in kinds]
    report = {}
    for kind in kinds:
        before = counts()
        report[kind] = call(importlib.import_module(f"k_{kind}").fn)
        after = counts()
        report[kind]["counted"] = {name: after[name] - before[name] for name in COUNTED}
    out.write_text(json.dumps(report))


def call(fn):
    import jax

    return {"daemon": outcome(jitclient.jit(fn)), "jax": outcome(jax.jit(fn)), "direct": outcome(fn)}


def outcome(fn):
    """The value at one argument, or what was raised."""
    import jax.numpy as jnp

    try:
        return value(fn(jnp.arange(4.0)))
    except Exception as error:
        return {"raised": type(error).__name__, "traceback": traceback.format_exc()}


def value(result):
    import numpy as np

    array = np.asarray(result)
    return [str(array.dtype), list(array.shape), array.astype(float).ravel().tolist()]


def counts():
    with process.session() as session:
        session.send_report()  # otherwise the next program's request would
    status = ask(settings(), Verb.STATUS, None, Status)
    return {name: getattr(status, name) for name in COUNTED}


if __name__ == "__main__":
    main()
