"""Engine of `jitclient.pool`: tasks of one program, the driver, on worker processes of many hosts.

A *worker* is the process `jitserver pool-worker` in the environment of its host. It runs tasks one after the other; the
jitted functions that they call use the daemon of that host. User code never runs in the daemon.

 - The driver starts a worker by a command (`hosts.py`: this Python, or the system's ssh or srun) and talks to it over
   the command's input and output (`frames.py`), in `messages.py`. On a Ray cluster, an actor (`actors.py`) starts the
   worker, and `actor_process.py` looks like that command, so all else is the same (`ray_cluster.py`). Worker and driver
   compare their versions before anything is pickled (`versions.py`).
 - `schedule.py` decides which worker runs which calls, and which are run again after a worker is lost. It is state
   without I/O. `slot.py` is the life of one worker on the driver's side: start, feed, lose, start again.
 - Code and values are pickled (`pickling.py`): functions of `__main__` by value. Modules of the program are imported by
   the worker from the driver's source (`sources.py`, `imports.py`), and installed packages are the host's own.
 - `daemons.py` is for commands: the daemons of hosts, without workers.
 - `results.py` and `progress.py` are what the user sees of a `map`.

Each side sends a sign of life every second, or more often. A worker that the driver does not hear is lost; a worker
whose driver has closed the connection exits at once, in the middle of a task as well.
"""
