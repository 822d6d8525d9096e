"""Function `pool`: runs functions on the machines that a list of addresses names, as `concurrent.futures` does."""

import atexit
import collections
import contextlib
import itertools
import os
import re
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Executor, Future, InvalidStateError
from typing import Any, TypeVar

from jitclient.api import keeping
from jitclient.api.pool_keeping import KeptByPool
from jitclient.api.pool_setup import setup_of_program
from jitclient.core.clock import monotonic
from jitclient.core.settings import settings
from jitclient.core.threads import Thread
from jitclient.core.tracebacks import api_boundary, hide_machinery
from jitclient.errors import SettingsError
from jitclient.pools import on_dask, on_ray, tasks
from jitclient.pools.engine import PoolEngine, Prepare
from jitclient.pools.progress import bar
from jitclient.session import process
from jitclient.wire.address import remote

_T = TypeVar("_T")

_LOCAL = re.compile(r"local:(\d+)")
_SLURM = "slurm"
_MAX_CHUNKS = 1000
_FORMS = (
    "local:N, ssh://[user@]host[:port][/path/to/environment], slurm, ray, ray://head:port, tcp://scheduler:port, or a "
    "client of Dask"
)


@api_boundary
def pool(
    addresses: Any,
    /,
    *,
    workers: int = 1,
    retries: int = 2,
    timeout: float | None = None,
    initializer: Callable[..., object] | None = None,
    initargs: tuple[Any, ...] = (),
    **options: Any,
) -> "Pool":
    """Return an executor that runs functions on hosts, in worker processes of Dask or Ray beside the host's daemon.

    Args:
        addresses: `local:N` for N workers on this machine, `ssh://[user@]host[:port][/path/to/environment]`, or a
            sequence of these; `slurm`; `ray://head:port` or `ray`, the Ray cluster of this machine or program;
            `tcp://scheduler:port` or a `distributed.Client`, a Dask cluster that exists.
        workers: workers on each machine of ssh, for each node of SLURM, or on each host of a Ray cluster.
        retries: how often a task runs again whose worker died. A Dask cluster that exists has a setting for it.
        timeout: seconds without a sign of life after which a worker counts as lost, and without any worker after which
            a task fails; overrides JITSERVER_TIMEOUT.
        initializer: called with `initargs` in each worker before its first task.
        initargs: arguments of the initializer.
        **options: for `slurm`: `nodes`, the number of nodes, and any option of sbatch, such as `gres="gpu:1"`. For Ray:
            `gpus`, the number of accelerators of each host, and `hosts`, their number (default: all).

    Returns:
        A `Pool`, once a worker has started, or is in SLURM's queue.

    Raises:
        SettingsError: an address is invalid, or its engine is not installed.
        TypeError: the options are not those of the address.
        Incompatible: a host has other versions of Python, jax or jitserver; the message names the host.
        HostUnreachable, DaemonUnavailable, WorkerLost: no host has a worker; the message says why.
        Exception: the initializer raised it.

    Example:
        >>> with jitclient.pool(["ssh://a/~/jit", "ssh://b/~/jit"]) as pool:
        ...     losses = list(pool.map(train, rates))
    """
    if workers < 1 or retries < 0:
        raise ValueError(f"pool: workers must be at least 1 and retries at least 0; got {workers} and {retries}")
    seconds = settings().timeout if timeout is None else timeout
    prepare = setup_of_program(initializer, initargs)
    return Pool(_engine(addresses, workers, retries, seconds, options, prepare))


def _engine(
    addresses: Any, workers: int, retries: int, seconds: float, options: Mapping[str, Any], prepare: Prepare
) -> PoolEngine:
    named = list(addresses) if isinstance(addresses, (list, tuple)) else [addresses]
    first = named[0] if len(named) == 1 else None
    if first == _SLURM:
        of_sbatch = {name: value for name, value in options.items() if name != "nodes"}
        return on_dask.under_slurm(options.get("nodes", 1), workers, retries, seconds, of_sbatch, prepare)
    if isinstance(first, str) and (first in ("ray", "auto") or first.startswith("ray://")):
        if unknown := options.keys() - {"gpus", "hosts"}:
            raise TypeError(f"pool: {', '.join(unknown)}: the options of Ray are gpus and hosts")
        gpus, hosts = options.get("gpus", 0), options.get("hosts")
        return on_ray.OnRay(first, gpus, hosts, workers, retries, seconds, prepare)
    if options:
        raise TypeError(f"pool: {', '.join(options)}: only slurm and Ray have options, and need a pool of their own")
    if isinstance(first, str) and re.match(r"(tcp|tls)://.+:\d+$", first):
        return on_dask.on_existing(first, prepare)
    if first is not None and not isinstance(first, str):
        return on_dask.on_existing(first, prepare)
    places = [place for address in named for place in _places(address, workers)]
    if not places:
        raise SettingsError(f"pool: no host is named. Pass {_FORMS}")
    # The name of a host with several workers has a number.
    names: dict[str, Iterator[int]] = {place.name: itertools.count(1) for place in places}
    counts = collections.Counter(place.name for place in places)
    labelled = [
        place if counts[place.name] == 1 else place._replace(name=f"{place.name} {next(names[place.name])}")
        for place in places
    ]
    return on_dask.on_places(labelled, _daemon_of_this_program(), retries, seconds, prepare)


def _places(address: Any, workers: int) -> list[on_dask.Place]:
    if isinstance(address, str) and (local := _LOCAL.fullmatch(address)) and int(local[1]):
        return [on_dask.Place("local", None)] * int(local[1])
    if isinstance(address, str) and (found := remote(address)) is not None:
        return [on_dask.Place(found.host, found)] * workers
    raise SettingsError(f"pool: host {address!r}: expected {_FORMS}")


def _daemon_of_this_program() -> str:
    """Return the address of the daemon; empty for the user's own."""
    address = (settings() if process.current is None else process.current.settings).address or ""
    found = remote(address)
    return address if found is None else str(found)


class Pool(Executor):
    """Executor on many hosts, made by `pool`: a `concurrent.futures.Executor`.

    The futures of `submit` work with `concurrent.futures.wait` and `as_completed`. An exception of a task is raised
    with the worker's traceback as its cause. Leaving a `with` block by an exception cancels the tasks that wait; by
    Ctrl-C, those that run as well.

    Attributes:
        client: the engine's own object: a `distributed.Client` with its dashboard, or the module `ray`.
    """

    def __init__(self, engine: PoolEngine) -> None:
        self.client = engine.client
        self._engine = engine
        self._lock = threading.Lock()
        self._is_closed = False
        self._futures: set[Future[Any]] = set()
        # Also at the exit of the program: tasks that were submitted finish, as in other executors.
        self._end = weakref.finalize(self, _shut_down_later, engine, self._futures, os.getpid())
        self._end.atexit = False
        # Before the hooks of the engines, which close their connections.
        atexit.register(_end_now, self._end)

    @api_boundary
    def submit(self, fn: Callable[..., _T], /, *args: Any, **kwargs: Any) -> "Future[_T]":
        """Run `fn(*args, **kwargs)` on a worker; the arguments are those at the time of this call.

        Raises:
            Exception: the function or its arguments cannot be pickled.
            RuntimeError: the pool was shut down.

        Example:
            >>> pool.submit(train, 0.1).result()
        """
        found: Future[_T] = Future()
        theirs = self._submit(_name(fn), tasks.dumps(fn), [[tasks.dumps((args, kwargs))]])[0]

        def cancel(future: "Future[_T]") -> None:
            if future.cancelled():
                theirs.cancel()

        def settle(done: "Future[list[tasks.Outcome]]") -> None:
            if done.cancelled():
                found.cancel()
            if not found.set_running_or_notify_cancel():
                return
            try:
                found.set_result(tasks.result_of(done.result()[0]))
            except BaseException as error:
                found.set_exception(error)

        found.add_done_callback(cancel)
        theirs.add_done_callback(settle)
        return found

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
            chunksize: number of calls to send to a worker together, which saves time if each takes less than some
                milliseconds; they are tried again together, too. None: one, or a thousandth of more than a thousand.
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
        name, function = _name(fn), tasks.dumps(fn)
        given = zip(*iterables, strict=False)
        arguments: Iterable[tuple[Any, ...]] = list(given) if buffersize is None else given
        total = len(arguments) if isinstance(arguments, list) else None
        size = chunksize or max(1, (total or 0) // _MAX_CHUNKS)
        calls = (tasks.dumps((each, {})) for each in arguments)
        chunks = iter(lambda: list(itertools.islice(calls, size)), [])
        room = None if buffersize is None else -(-buffersize // size)
        waiting = collections.deque(self._submit(name, function, list(itertools.islice(chunks, room))))
        more = (self._submit(name, function, [chunk])[0] for chunk in chunks)
        return _values(waiting, more, None if timeout is None else monotonic() + timeout, lambda: bar(name, total))

    @api_boundary
    def keep(
        self, name: str, load: Callable[[], Any], *, deps: Iterable[Any] | None = None, ttl: float | None = keeping.DAY
    ) -> KeptByPool:
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
        return KeptByPool(name, load, None if deps is None else tuple(deps), ttl)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more tasks, and end the workers when those submitted have finished.

        Args:
            wait: whether to wait for that.
            cancel_futures: whether to cancel the tasks that no worker has begun.
        """
        with self._lock:
            self._is_closed = True
            futures = list(self._futures)
        if cancel_futures:
            self._engine.note_begun()
            for future in futures:
                future.cancel()
        if wait:
            _end_now(self._end)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: Any) -> None:
        if error is not None and not isinstance(error, Exception):
            self._end.detach()
            self.shutdown(wait=False)
            left = list(self._futures)
            self._engine.close()
            for future in left:
                # A future whose task runs cannot be cancelled.
                if not future.cancel() and not future.done():
                    with contextlib.suppress(InvalidStateError):
                        future.set_exception(CancelledError())
        else:
            self.shutdown(wait=True, cancel_futures=error is not None)

    def _submit(
        self, name: str, function: bytes, chunks: Sequence[Sequence[bytes]]
    ) -> "list[Future[list[tasks.Outcome]]]":
        with self._lock:
            if self._is_closed:
                raise RuntimeError("cannot schedule new futures after shutdown")
            found = self._engine.submit(name, function, chunks)
            self._futures.update(found)
        for future in found:
            future.add_done_callback(self._futures.discard)
        return found


def _values(
    waiting: "collections.deque[Future[list[tasks.Outcome]]]",
    more: "Iterator[Future[list[tasks.Outcome]]]",
    deadline: float | None,
    new_bar: Callable[[], Any],
) -> Iterator[Any]:
    """Yield the values of futures in their order, and submit one more for each whose values were taken."""
    shown = new_bar()
    count = 0
    try:
        while waiting:
            future = waiting.popleft()
            try:
                outcomes = future.result(None if deadline is None else max(deadline - monotonic(), 0))
            finally:
                future.cancel()  # changes nothing but for one that is not there in time
            for outcome in outcomes:
                count += 1
                shown.show(count)
                yield tasks.result_of(outcome)
            waiting.extend(itertools.islice(more, 1))
    except BaseException as error:
        hide_machinery(error)
        raise
    finally:
        shown.close()
        for future in waiting:
            future.cancel()


def _end_now(end: "weakref.finalize[Any, Any]") -> None:
    """Shut a pool down, unless that was done."""
    if (left := end.detach()) is not None:
        _shut_down(*left[2])


def _shut_down_later(engine: PoolEngine, futures: "set[Future[Any]]", owner: int) -> None:
    """Shut a pool down that nothing refers to any more. The thread in which that shows waits for no task."""
    ending = Thread(lambda: _shut_down(engine, futures, owner), "pool: end")
    ending.start()
    atexit.register(ending.join)


def _shut_down(engine: PoolEngine, futures: "set[Future[Any]]", owner: int) -> None:
    """Wait until all tasks have finished, and end the workers."""
    if os.getpid() != owner:  # a forked child, in which no thread of the engine runs
        return
    for future in list(futures):
        try:
            future.exception()
        except CancelledError:
            pass
    engine.close()


def _name(fn: Any) -> str:
    return str(getattr(fn, "__qualname__", type(fn).__qualname__)).rpartition("<locals>.")[2]
