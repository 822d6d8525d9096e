"""Programs that have moved in: on the CPU, this process loads them from the daemon, and calls them as JAX would.

There is no device to share, and an exchange with the daemon takes longer than many programs. So the daemon answers the
first calls, which need nothing but a look-up. As soon as a program has been called more often than its size is worth,
a thread asks the daemon for its executable and loads it. From then on, its calls run here: the same code, in JAX's own
C++ path, on arrays of this process.
"""

import atexit
import contextlib
import dataclasses
import math
import operator
import os
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from jitclient.arrays.array import Array
from jitclient.calls import MISS
from jitclient.calls.arguments import value_of
from jitclient.calls.attempts import CallFailed
from jitclient.capture.graph.watch import UNBOUND_ERRORS, Watch
from jitclient.core import events
from jitclient.errors import JitserverError, ProgramLost
from jitclient.jaxside import after_fork, cpu_executables, internals, unchanged
from jitclient.jaxside.interop import is_jax_array, weakly_typed
from jitclient.jaxside.options import JitOptions
from jitclient.session import process
from jitclient.session.session import Session
from jitclient.wire.address import remote
from jitclient.wire.array_transport import nbytes_of
from jitclient.wire.messages import Executable, Load, Prepared, Spec, Verb

_FIRST_CALLS = 20
_BYTES_PER_CALL = 8 << 10
"""Bytes of an executable that are loaded for each call so far: loading takes some 0.3 ms for each KiB, in a thread, and
the exchange of a call with the daemon 0.1 ms or more.
"""

_MAX_BYTES = 8 << 20
"""Maximum size of an executable that moves in: loading that takes seconds, for which a fork and the exit wait."""

_MAX_ARRAY_BYTES = 32 << 20
"""Maximum bytes of a program's arguments and results. For larger ones the exchange hardly counts, and shared memory
carries them faster than JAX copies numpy arrays: 128 MiB there and back take a quarter of the time.
"""

_ASK_SECONDS, _WAIT_SECONDS = 2.0, 10.0

_loading: set[threading.Thread] = set()
_here: "weakref.WeakSet[Moving | LocalCalls]" = weakref.WeakSet()


class MovedIn(NamedTuple):
    """An executable that this process has loaded: a `jax.stages.Compiled` over leaves."""

    compiled: Any
    specs: Sequence[Spec]
    results: Sequence[Spec]

    def call(self, leaves: Sequence[Any]) -> list[Any]:
        """Run the program on any leaves that have its specs; return arrays of this process's own jax."""
        import jax

        given = [_of_this_process(leaf, spec) for leaf, spec in zip(leaves, self.specs, strict=True)]
        # Of what a program's own trace exported, the results have no weak types, and are committed.
        results = [
            weakly_typed(result) if spec.weak_type and not result.weak_type else result
            for result, spec in zip(self.compiled(*given), self.results, strict=True)
        ]
        if any(getattr(leaf, "committed", False) for leaf in given):
            return jax.device_put(results, jax.devices()[0])  # type: ignore[no-any-return]
        return [internals.uncommitted(result) if result.committed else result for result in results]


def _of_this_process(leaf: Any, spec: Spec) -> Any:
    if type(leaf) is Array:
        return leaf.in_process()
    return leaf if is_jax_array(leaf) else value_of(leaf, spec)


class Moving:
    """How far a program is on its way to this process.

    Attributes:
        calls_left: number of calls until the program is asked for; not positive once it has moved in.
        done: the program, once it has moved in.
    """

    def __init__(
        self,
        session: Session,
        generation: int,
        prepared: Prepared,
        specs: Sequence[Spec],
        label: str,
        is_placed: bool,
    ) -> None:
        self._session, self._generation, self._prepared, self._specs = session, generation, prepared, specs
        self._label = label
        self._calls = _FIRST_CALLS
        special = prepared.may_raise or prepared.has_effects or prepared.foreign or is_placed
        arrays = *specs, *prepared.results
        stays = any(spec.sharding is not None for spec in arrays) or sum(map(nbytes_of, arrays)) > _MAX_ARRAY_BYTES
        self.calls_left: float = math.inf if special or stays else _FIRST_CALLS
        self.done: MovedIn | None = None

    def stay(self) -> None:
        """Leave the program on the daemon for good."""
        self.calls_left, self.done = math.inf, None

    def fast_program(self, value: Any) -> Any:
        """Return the program for JAX's own C++ code, given the value of a call; None if that cannot call it."""
        done = self.done
        # The value is there: another version of jax must not turn it into an error.
        with contextlib.suppress(Exception):
            return None if done is None else internals.fast_program(done.compiled, len(done.specs), value)
        return None

    def go_on(self) -> None:
        """Load the program in a thread, unless it is too large for the number of its calls. Called after a call."""
        if not hasattr(sys.modules.get("jax"), "Array"):
            self.calls_left = _FIRST_CALLS  # the program may import it later
            return
        self.calls_left = math.inf
        if is_on_same_cpu(self._session) and not after_fork.has_no_threads():
            # The exit waits for it, but not for ever: an interrupted import can leave Python's lock of imports held.
            thread = threading.Thread(target=self._load, name="jitclient-load", daemon=True)
            _loading.add(thread)
            try:
                thread.start()
            # The process has no thread left, or ends.
            except RuntimeError:
                _loading.discard(thread)

    def _load(self) -> None:
        try:
            found = self._executable(min(self._calls * _BYTES_PER_CALL, _MAX_BYTES))
            if found.data:
                self.done = MovedIn(cpu_executables.load(found.data), self._specs, self._prepared.results)
                self.calls_left = 0
                _here.add(self)
                events.log.count("moved in", self._label, str(self._calls))
            elif 0 < found.nbytes <= _MAX_BYTES:
                needed = -(-found.nbytes // _BYTES_PER_CALL)
                self.calls_left, self._calls = needed - self._calls, needed
        except JitserverError:
            self.calls_left = _FIRST_CALLS
        # This process cannot load the program.
        except Exception:
            self.stay()
        finally:
            _loading.discard(threading.current_thread())

    def _executable(self, max_bytes: int) -> Executable:
        """Ask for the executable, if it is not larger.

        Raises:
            JitserverError: the daemon that knows the program's number is gone, or hangs.
        """
        session = self._session
        with session.lock:
            if session.connection is None or session.program_generation != self._generation:
                raise ProgramLost("the connection is gone, or another daemon has taken over")
            asked = Load(self._prepared.executable, max_bytes)
            # The exit of the program and its forks wait for this.
            found: Executable = session.ask_once(Verb.LOAD, asked, Executable, timeout=_ASK_SECONDS)
            return found


def is_on_same_cpu(session: Session) -> bool:
    """Return whether the daemon of a session computes with the same CPU devices as this process's jax."""
    jax = sys.modules["jax"]
    if session.platform != "cpu" or remote(session.settings.address) is not None:
        return False
    return not cpu_executables.refusal() and jax.default_backend() == "cpu" and len(jax.devices()) == session.devices


@dataclasses.dataclass
class _First:
    """The first call of a signature, while JAX's own code makes it."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    run: Callable[[], tuple[Any, Any]]
    is_begun: bool = False
    error: BaseException | None = None

    def is_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        is_same = len(args) == len(self.args) and kwargs.keys() == self.kwargs.keys()
        return is_same and all(
            map(operator.is_, (*args, *kwargs.values()), (*self.args, *map(self.kwargs.get, kwargs)))
        )


class LocalCalls:
    """Calls of a function's programs that have moved in, in JAX's own C++ code.

    Attributes:
        plan: a call plan for all signatures that were called before; None if this version of jax lacks that code.
    """

    def __init__(self, fun: Callable[..., Any], name: str, options: JitOptions, watch: Watch | None) -> None:
        self._thread = threading.local()
        self._watch, self._session, self._has_same_settings = watch, process.current, unchanged.check_not_compared()
        statics = options.static_argnums, options.static_argnames
        self._fast = internals.fast_calls(fun, name, self._missed(), *statics)
        self._stays: list[bool] = []  # not empty once the programs must stay on the daemon
        self.plan = None if self._fast is None else self._plan()
        _here.add(self)

    def stay(self) -> None:
        """Leave all programs on the daemon for good."""
        self._stays.append(True)

    def is_current(self) -> bool:
        """Return whether nothing has changed that JAX's own code does not compare: session, settings, captures."""
        is_same = process.current is self._session and self._has_same_settings()
        return is_same and (self._watch is None or self._watch.unchanged())

    def call(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], run: Callable[[], Any], made: Callable[[Any], Any]
    ) -> Any:
        """Make the first call of a signature by `run`; `made` makes the program of later ones, given its value."""
        thread = self._thread
        outer, first = getattr(thread, "first", None), _First(args, kwargs, lambda: (value := run(), made(value)))
        # Flattening may run the user's code, which may call this function, too.
        thread.first = first
        try:
            value = self._fast(*args, **kwargs)
        finally:
            thread.first = outer
        if first.error is not None:
            raise first.error
        return run() if value is MISS else value

    def _missed(self) -> Callable[..., tuple[Any, Any, bool]]:
        thread = self._thread

        def missed(*args: Any, **kwargs: Any) -> tuple[Any, Any, bool]:
            first = getattr(thread, "first", None)
            if first is None or first.is_begun or not first.is_of(args, kwargs):
                return MISS, None, True
            first.is_begun = True
            try:
                value, program = first.run()
            # JAX's code would have no program for the signature any more.
            except BaseException as error:
                first.error = error
                return MISS, None, True
            return value, program, program is None

        return missed

    def _plan(self) -> Callable[[tuple[Any, ...], dict[str, Any]], Any]:
        session, watch, fast, stays = self._session, self._watch, self._fast, self._stays
        has_same_settings = self._has_same_settings
        no_checks: list[Callable[[], bool]] = []

        def plan(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            # JAX's own code compares the other settings.
            if process.current is not session or stays or not has_same_settings():
                return MISS
            try:
                for check in no_checks if watch is None else watch.checks:
                    if not check():
                        return MISS
            except UNBOUND_ERRORS:
                return MISS
            try:
                return fast(*args, **kwargs)
            except Exception as error:
                raise CallFailed(error) from None

        return plan


def _wait() -> None:
    """Wait for the programs that are being loaded: neither a fork nor the exit may happen within XLA.

    Their threads may wait for a session that the forking thread holds, so not without a limit.
    """
    for thread in list(_loading):
        thread.join(_WAIT_SECONDS)


def _after_fork() -> None:
    """Leave the programs on the daemon in a forked child, where XLA has no threads."""
    for each in list(_here):
        each.stay()


os.register_at_fork(before=_wait, after_in_child=_after_fork)
atexit.register(_wait)
