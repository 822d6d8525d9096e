"""Function `pool`: runs functions on the machines that a list of addresses names, as `concurrent.futures` does."""

import atexit
import contextlib
import functools
import itertools
import os
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

from jitclient.api import keeping, switch
from jitclient.api.pool_keeping import Kept
from jitclient.core.notices import print_notice
from jitclient.core.settings import settings
from jitclient.core.threads import Thread
from jitclient.core.tracebacks import api_boundary
from jitclient.errors import Incompatible
from jitclient.jaxside import context, jax_settings
from jitclient.pools import pickling
from jitclient.pools.hosts import Host, hosts_of
from jitclient.pools.progress import bar
from jitclient.pools.results import FutureSink, MapSink
from jitclient.pools.schedule import Job, Schedule
from jitclient.pools.slot import Context, Slot
from jitclient.session import process
from jitclient.wire.address import remote

_T = TypeVar("_T")

# A named array is looked up as soon as the worker begins the call.
_NAME_SECONDS = 300.0
_KILL_SECONDS = 5.0


@api_boundary
def pool(
    addresses: str | Sequence[str],
    /,
    *,
    workers: int = 1,
    retries: int = 2,
    timeout: float | None = None,
    initializer: Callable[..., object] | None = None,
    initargs: tuple[Any, ...] = (),
    **options: Any,
) -> "Pool":
    """Return an executor that runs functions on hosts, in worker processes beside the daemon of each host.

    Args:
        addresses: `local:N` for N workers on this machine, `ssh://[user@]host[:port][/path/to/environment]`, `slurm`,
            `ray://head:port` or `ray`, the Ray cluster of this machine or program, or a sequence of such addresses.
        workers: workers on each machine of ssh, for each node of SLURM, or on each host of a Ray cluster.
        retries: how often a task runs again whose worker died.
        timeout: seconds without a sign of life after which a worker or host counts as lost; overrides
            JITSERVER_TIMEOUT.
        initializer: called with `initargs` in each worker before its first task.
        initargs: arguments of the initializer.
        **options: for `slurm`: `nodes`, the number of nodes, and any option of srun, such as `gres="gpu:1"`. For Ray:
            `gpus`, the number of accelerators of each host, and `hosts`, their number (default: all).

    Returns:
        A `Pool`, once its workers have started, apart from those that wait in SLURM's queue. A host that cannot be
        reached is tried again later.

    Raises:
        SettingsError: an address is invalid, or a Ray cluster has too few nodes.
        TypeError: the options are not those of the address.
        Incompatible: a host has other versions of Python, Ray, jax or jitserver; the message names the host.
        HostUnreachable, DaemonUnavailable, WorkerLost: no host has a worker; the message says why.

    Example:
        >>> with jitclient.pool(["ssh://a/~/jit", "ssh://b/~/jit"]) as pool:
        ...     losses = list(pool.map(train, rates))
    """
    return Pool(addresses, workers, retries, timeout, initializer, initargs, options)


class Pool(Executor):
    """Executor on many hosts, made by `pool`: a `concurrent.futures.Executor`.

    The futures of `submit` work with `concurrent.futures.wait` and `as_completed`. An exception of a task is raised
    with the worker's traceback as its cause. Leaving a `with` block by an exception cancels the tasks that wait; by
    Ctrl-C, those that run as well.
    """

    def __init__(
        self,
        addresses: str | Sequence[str],
        workers: int,
        retries: int,
        timeout: float | None,
        initializer: Callable[..., object] | None,
        initargs: tuple[Any, ...],
        options: Mapping[str, Any],
    ) -> None:
        if workers < 1 or retries < 0:
            raise ValueError(f"pool: workers must be at least 1 and retries at least 0; got {workers} and {retries}")
        places = hosts_of(addresses, workers, _daemon_of_this_program(), options)
        self._schedule = Schedule([place.name for place in places], retries)
        prepare = functools.partial(_prepare, _jax_settings(), _installed(), initializer, initargs)
        shared = Context(
            self._schedule,
            settings().timeout if timeout is None else timeout,
            getattr(sys.modules["__main__"], "__file__", None) or "",
            pickling.dumps(prepare),
            _placed,
        )
        self._slots = [
            Slot(number, place, label, shared)
            for number, (place, label) in enumerate(zip(places, _labels(places), strict=True))
        ]
        # Also at the exit of the program: tasks that were submitted finish, as in other executors.
        self._end = weakref.finalize(self, _shut_down, self._schedule, self._slots, os.getpid())
        # Before the hooks of packages that the hosts need: Ray's would close its connection first.
        atexit.register(self._end)
        self._start([number for number, place in enumerate(places) if not place.has_queue])

    def _start(self, soon: Sequence[int]) -> None:
        """Start the workers; wait for those whose hosts start them at once."""
        try:
            for slot in self._slots:
                slot.thread.start()
            failures = self._schedule.wait_until_started(soon)
        except BaseException:
            self._kill()
            raise
        wrong = [error for error in failures if isinstance(error, Incompatible)]
        if wrong or len(failures) == len(self._slots):
            self._kill()
            raise (wrong or failures)[0]
        for error in failures:
            print_notice(f"pool: a worker cannot be started; trying further ({error})")

    @api_boundary
    def submit(self, fn: Callable[..., _T], /, *args: Any, **kwargs: Any) -> "Future[_T]":
        """Run `fn(*args, **kwargs)` on a worker; the arguments are those at the time of this call.

        Raises:
            Exception: the function or its arguments cannot be pickled.
            RuntimeError: the pool was shut down.

        Example:
            >>> pool.submit(train, 0.1).result()
        """
        sink = FutureSink()
        self._schedule.add(Job(_name(fn), pickling.dumps(fn), sink, holds=(fn, args, kwargs)), {0: _call(args, kwargs)})
        return sink.future

    @api_boundary
    def map(
        self,
        fn: Callable[..., _T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int | None = None,
        buffersize: int | None = None,
    ) -> Iterator[_T]:
        """Return an iterator over `fn(*args)` for the arguments that the iterables give, in their order.

        A terminal shows a progress bar.

        Args:
            fn: the function.
            *iterables: its arguments; read to the end at once, unless `buffersize` is given.
            timeout: seconds from this call within which each value must be there.
            chunksize: number of calls to send to a worker together; None: one, or as many as take a tenth of a second.
            buffersize: maximum number of calls whose values were not taken yet; None: no limit.

        Raises:
            Exception: the function or arguments cannot be pickled, or a call raised it.
            TimeoutError: a value is not there in time.

        Example:
            >>> for loss in pool.map(train, [0.1, 0.03, 0.01]):
            ...     print(loss)
        """
        for name, value in (("chunksize", chunksize), ("buffersize", buffersize)):
            if value is not None and value < 1:
                raise ValueError(f"map: {name} must be at least 1; got {value}")
        given: Iterator[tuple[Any, ...]] = zip(*iterables, strict=False)
        arguments = given if buffersize is not None else list(given)
        total = len(arguments) if isinstance(arguments, list) else None
        feed = _Arguments(iter(arguments), buffersize)
        sink = MapSink(timeout)
        job = Job(_name(fn), pickling.dumps(fn), sink, chunksize, holds=fn)
        feed.add(self._schedule, job, 0)
        return sink.values(lambda taken: feed.add(self._schedule, job, taken), lambda: bar(job.name, total))

    @api_boundary
    def keep(
        self, name: str, load: Callable[[], Any], *, deps: Iterable[Any] | None = None, ttl: float | None = keeping.DAY
    ) -> Kept:
        """Keep the result of a function on the daemon of each host, as `jitclient.keep` does.

        Each host calls the function when a task first needs it, unless the name holds its result already, as in the
        next run of the program. Pass the returned object to tasks, which get a tree of arrays on the daemon of their
        host.

        Args:
            name: name shared by all programs that use the host's daemon.
            load: function without arguments that returns a tree of arrays; it should read large data on the host.
            deps: inputs of the function apart from its code and captured values, as for `jitclient.keep`.
            ttl: time to live in seconds since the last use; None: no limit.

        Example:
            >>> data = pool.keep("mnist", load)
            >>> losses = pool.map(train, rates, [data] * len(rates))
        """
        return Kept(name, load, None if deps is None else tuple(deps), ttl)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more tasks, and end the workers when those submitted have finished.

        Args:
            wait: whether to wait for that.
            cancel_futures: whether to cancel the tasks that no worker has begun.
        """
        for job, index in self._schedule.close(cancel_futures):
            job.sink.cancel(index)
        if wait:
            self._end()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: Any) -> None:
        if error is not None and not isinstance(error, Exception):
            self._kill()
        else:
            self.shutdown(wait=True, cancel_futures=error is not None)

    def _kill(self) -> None:
        """End the workers and what they run now."""
        self._end.detach()
        for job, index in self._schedule.close(cancel=True):
            job.sink.cancel(index)
        # At once, since a host that is cut off takes seconds.
        for slot in self._slots:
            with contextlib.suppress(RuntimeError):  # no thread is available
                Thread(slot.kill, "pool: end of a worker").start()
        for slot in self._slots:
            slot.thread.join(_KILL_SECONDS)
        # Tasks that ran have lost their workers.
        for job, index in self._schedule.close(cancel=True):
            job.sink.cancel(index)


def _shut_down(schedule: Schedule, slots: Sequence[Slot], owner: int) -> None:
    """Wait until all tasks have finished and the workers have exited."""
    if os.getpid() != owner:  # a forked child, in which no thread of the pool runs
        return
    schedule.close(cancel=False)
    schedule.wait_until_over()
    for slot in slots:
        slot.kill(unless_started=True)
    for slot in slots:
        slot.thread.join()


class _Arguments:
    """Arguments of a map, added to the schedule all at once, or as values are taken.

    Args:
        arguments: the arguments of each call.
        room: maximum number of calls whose values were not taken; None: no limit.
    """

    def __init__(self, arguments: Iterator[tuple[Any, ...]], room: int | None) -> None:
        self._arguments, self._room = arguments, room
        self._count = 0
        self._is_read = False

    def add(self, schedule: Schedule, job: Job, taken: int) -> tuple[int, bool]:
        """Add the calls for which there is room; return the number of all calls added, and whether these are all.

        Args:
            schedule: where to add them.
            job: the job of the map.
            taken: number of values taken.
        """
        if self._is_read:
            return self._count, True
        wanted = None if self._room is None else self._room + taken - self._count
        some: list[Any] = list(itertools.islice(self._arguments, wanted))
        self._is_read = wanted is None or len(some) < wanted
        # Most maps are over numbers, and a look at each of them by itself takes longer than to send them.
        if not pickling.PLAIN.issuperset(map(type, itertools.chain.from_iterable(some))):
            some = [_call(args, {}) for args in some]
        if some:
            schedule.add(job, dict(enumerate(some, self._count)))
        self._count += len(some)
        return self._count, self._is_read


# ---- in a worker


def _prepare(
    jax_variables: dict[str, str],
    installed: Sequence[Sequence[str]],
    initializer: Callable[..., object] | None,
    initargs: tuple[Any, ...],
) -> None:
    """Prepare a worker: with the settings of JAX and the `install` of the driver, and the user's initializer."""
    os.environ.update(jax_variables)
    for packages in installed:
        switch.install(packages)
    if initializer is not None:
        initializer(*initargs)


class _Named:
    """Array under a name on the daemon that driver and worker share."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __reduce__(self) -> Any:
        return keeping.kept, (self._name,)


# ---- in the driver


def _placed(host: Host, array: Any) -> Any:
    """Return the stand-in for an array of a daemon in the arguments of a call: its name there, or itself as a value."""
    if host.daemon != _daemon_of_this_program() or not array.is_at(process.session()):
        return array
    name = f"pool {os.getpid()} {id(array):x}"
    return _Named(name) if pickling.is_array(keeping.keep(name, array, ttl=_NAME_SECONDS)) else array


def _daemon_of_this_program() -> str:
    """Return the address of the daemon; empty for the user's own."""
    address = (settings() if process.current is None else process.current.settings).address or ""
    found = remote(address)
    return address if found is None else str(found)


def _call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return args if not kwargs and pickling.is_plain(args) else pickling.snapshot((args, kwargs))


def _name(fn: Any) -> str:
    return str(getattr(fn, "__qualname__", type(fn).__qualname__)).rpartition("<locals>.")[2]


def _labels(places: Sequence[Host]) -> list[str]:
    """Return a label for each worker: the name of its host, with a number if the host has several."""
    names = [place.name for place in places]
    numbers: dict[str, Iterator[int]] = {name: itertools.count(1) for name in names}
    return [name if names.count(name) == 1 else f"{name} {next(numbers[name])}" for name in names]


def _installed() -> list[list[str]]:
    return [sorted(one.packages) for one in switch.in_force()]


def _jax_settings() -> dict[str, str]:
    """Return the settings of JAX that differ from its defaults and travel with calls, as environment variables."""
    return {
        name.upper(): str(value)
        for name, value in context.current()
        if name in jax_settings.CARRIED and isinstance(value, (bool, str))
    }
