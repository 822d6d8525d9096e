"""A cache on the disk that holds ten thousand programs: looking one up, listing them, and starting on it."""

import functools
import itertools
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import Effort, Samples, interleave, per_call
from benchmarks.processes import environment, temporary_folder, wall_time
from benchmarks.result import OURS, Row, Target
from benchmarks.rivals import ours
from jitclient.core.directories import environment_digest
from jitclient.wire.introspection import EntryInfo
from jitserver.store.catalog import CATALOG, Catalog
from jitserver.store.entry import KeyComponents, Stored

_LOOK_UP, _LIST, _START = "a program looked up by its key", "jitserver cache ls, no daemon", "start of a daemon"
_LIMITS = {_LOOK_UP: 0.001, _LIST: 0.5, _START: 2.0}


def rows(effort: Effort) -> Iterator[Row]:
    """The three targets of the cache that lasts."""
    count = effort.one(10_000, 10)
    with temporary_folder() as folder:
        env = environment(folder)
        path = Path(env["XDG_CACHE_HOME"]) / "jitserver" / environment_digest(env) / CATALOG
        path.parent.mkdir(mode=0o700, parents=True)
        keys = itertools.cycle(_filled(path, count))
        catalog = Catalog(path)
        takers = {
            _LOOK_UP: lambda: per_call(lambda: catalog.find(next(keys)), effort.seconds(0.2)),
            _LIST: functools.partial(wall_time, ["-P", "-m", "jitserver", "cache", "ls"], env, folder),
            _START: functools.partial(_start, folder),
        }
        samples = interleave(takers, effort.rounds(9), "catalog")
        catalog.close()
    for name, limit in _LIMITS.items():
        taken = {OURS: samples.taken[name]} if name in samples.taken else {}
        failed = {OURS: samples.failed[name]} if name in samples.failed else {}
        yield Row(f"{count:,} programs on the disk: {name}", Samples(taken, failed), (Target(limit),))


def _start(folder: Path) -> float:
    start = time.perf_counter()
    with ours.serve(folder):
        return time.perf_counter() - start


def _filled(path: Path, count: int) -> list[str]:
    """Makes a catalog of so many programs, none of which can be loaded; returns their keys."""
    catalog, keys = Catalog(path), [secrets.token_hex(16) for _ in range(count)]
    now = time.time()
    for number, key in enumerate(keys):
        name = f"step_{number % 100}"
        label = f"{name}(f32[256,256], f32[1024,256], … 71 more)"
        context = {"jax": "0.10.2", "jaxlib": "0.10.2", "devices": "cpu:0 cpu"}
        info = EntryInfo(
            *(key, secrets.token_hex(16), name, "/home/user/project/train.py:120", label, label * 20, ""),
            *(context, {"trace": 0.1, "compile": 1.0}, 1.0, 1, now, now, 0),
        )
        rows = {"capture": secrets.token_bytes(16), "process": secrets.token_bytes(16)}
        catalog.add(Stored(info, KeyComponents(rows), bytes(1000), bytes(4000)), {})
    catalog.close()
    return keys
