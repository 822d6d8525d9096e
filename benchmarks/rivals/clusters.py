"""Clusters of other projects on this machine, each with its own processes, which end with the block."""

import contextlib
import logging
import os
import tempfile
from collections.abc import Iterator
from typing import Any

from benchmarks.processes import FINDS_BENCHMARKS


@contextlib.contextmanager
def dask(workers: int) -> Iterator[Any]:
    """A Dask cluster with worker processes of one thread; gives its client."""
    import distributed

    cluster = distributed.LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        processes=True,
        dashboard_address=None,
        memory_limit=None,
        silence_logs=logging.CRITICAL,
    )
    with cluster, distributed.Client(cluster) as client:
        yield client


@contextlib.contextmanager
def ray(**options: Any) -> Iterator[Any]:
    """A Ray with two processors; gives the module."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray as module

    module.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        runtime_env={"env_vars": FINDS_BENCHMARKS},
        _temp_dir=tempfile.gettempdir(),
        **options,
    )
    try:
        yield module
    finally:
        module.shutdown()
