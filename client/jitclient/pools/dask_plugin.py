"""Plugin for workers of Dask, in a module of its own, since its class needs Dask's."""

from distributed import WorkerPlugin

from jitclient.pools.engine import Prepare


class Plugin(WorkerPlugin):
    """Plugin with which each worker calls a function when it starts."""

    def __init__(self, prepare: Prepare) -> None:
        self._prepare = prepare

    def setup(self, worker: object) -> None:
        """Call the function. Dask calls this in each worker."""
        self._prepare()
