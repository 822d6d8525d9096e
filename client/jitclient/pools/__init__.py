"""`jitclient.pool` on the engines that people have: Dask and Ray.

The engine starts workers, schedules tasks, and tries them again; `on_dask.py` and `on_ray.py` are all that knows it.
Ours is what a worker gets before its first task (`setup.py`: versions, modules, settings), how a call travels
(`tasks.py`), and the bar of a `map` (`progress.py`). The jitted functions that a task calls use the daemon of the
worker's host, as in any program: user code never runs in the daemon.
"""
