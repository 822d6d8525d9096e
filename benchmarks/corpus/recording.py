"""Record of a program: the arrays in its globals and figures, and its times. A first line in the program starts it.

The global random generators are seeded, and what the program logs is printed, so that two runs can be compared.
"""

import contextlib
import functools
import json
import logging
import os
import random
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

ARRAYS, REPORT = "RECORDED_ARRAYS", "RECORDED_REPORT"
"""Variables that name the files of a report."""
_COMPILED = "/jax/core/compile/backend_compile_duration"


def begin(script: str) -> None:
    """Record the program from here on, and leave the report at its end."""
    compiled: list[float] = []
    _note_compilations(compiled)
    _print_logs_of(script)
    random.seed(0)
    np.random.seed(0)
    end = functools.partial(_end, time.perf_counter(), compiled)
    threading._register_atexit(end)  # type: ignore[attr-defined]  # before what `atexit` has: pyplot closes figures there


def _end(start: float, compiled: list[float]) -> None:
    found = {**_arrays_in(vars(sys.modules["__main__"])), **_drawn()}  # fetches what is still being computed
    seconds = time.perf_counter() - start
    np.savez(os.environ[ARRAYS], **{str(number): array for number, array in enumerate(found.values())})
    report = {"names": list(found), "seconds": seconds, "compiled_here": sum(compiled)}
    Path(os.environ[REPORT]).write_text(json.dumps(report))


def _note_compilations(seconds: list[float]) -> None:
    import jax

    jax.monitoring.register_event_duration_secs_listener(
        lambda event, duration, **_: seconds.append(duration) if event == _COMPILED else None
    )


def _print_logs_of(script: str) -> None:
    """Print what the script logs: where libraries send it, it comes with times and process ids."""
    make = logging.getLogRecordFactory()

    def printed(*arguments: Any, **more: Any) -> logging.LogRecord:
        record = make(*arguments, **more)
        if record.pathname == script:
            print(record.getMessage())
        return record

    logging.setLogRecordFactory(printed)


def _arrays_in(left: dict[str, Any]) -> dict[str, Any]:
    """All arrays in the globals, by name and path."""
    import jax

    found = {}
    for name, value in left.items():
        with contextlib.suppress(ValueError, TypeError):  # a dictionary whose keys have no order, say
            for path, leaf in jax.tree_util.tree_flatten_with_path(value)[0]:
                if hasattr(leaf, "dtype") and hasattr(leaf, "shape"):
                    found[name + jax.tree_util.keystr(path)] = _as_numpy(leaf)
    return found


def _drawn() -> dict[str, Any]:
    """Return the data that the open figures show."""
    found: dict[str, Any] = {}
    pyplot = sys.modules.get("matplotlib.pyplot")
    for number in pyplot.get_fignums() if pyplot else ():
        for at, axes in enumerate(pyplot.figure(number).axes):
            data = [line.get_xydata() for line in axes.lines] + [image.get_array() for image in axes.images]
            data += [collection.get_offsets() for collection in axes.collections]
            found |= {f"figure {number}, axes {at}, {i}": np.ma.getdata(each) for i, each in enumerate(data)}
    return found


def _as_numpy(leaf: Any) -> Any:
    import jax

    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    array = np.asarray(leaf)
    return array if array.dtype.kind in "biufcSU" else array.astype(np.float32)  # bfloat16 and the like
