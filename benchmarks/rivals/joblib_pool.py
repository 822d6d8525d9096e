"""joblib with two processes, which makes batches of short tasks."""

import contextlib
from collections.abc import Iterator

from benchmarks.rivals import Caller, no_server, same

NAME = "joblib"
NEEDS = ("joblib",)
serve = no_server


@contextlib.contextmanager
def connect() -> Iterator[Caller]:
    """Processes of joblib's, which stay between calls."""
    from joblib import Parallel, delayed

    with Parallel(n_jobs=2) as parallel:
        yield Caller(same, spread=lambda function, items: parallel(delayed(function)(item) for item in items))
