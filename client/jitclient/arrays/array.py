"""Client's handle of an array that lives on the daemon."""

import sys
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from jitclient.arrays.conversions import Conversions
from jitclient.arrays.operations import Operations
from jitclient.arrays.repeatable import Again, Repeatable
from jitclient.core.tracebacks import api_boundary
from jitclient.errors import ArrayBudgetExceeded, ArrayLost, DaemonDraining, DaemonHangs, DaemonUnavailable, ProgramLost
from jitclient.jaxside import interop
from jitclient.jaxside.avals import KEY_IMPLEMENTATIONS, aval_of, key_dtype, sharding_of_type
from jitclient.jaxside.placement import Placement
from jitclient.jaxside.runtime_errors import as_exhausted, runtime_error
from jitclient.session.exceptions import to_exception
from jitclient.session.outbox import Drops
from jitclient.session.retry import ATTEMPTS, with_retries
from jitclient.session.session import Session
from jitclient.wire.array_transport import HostArray, dtype_named, is_key, nbytes_of
from jitclient.wire.messages import Failure, Run, Spec

FETCHED_WITH_CALL = 64 << 10
"""Maximum total size of the results that come with the answer to their call."""

_REPEATED = ArrayLost, ArrayBudgetExceeded, ProgramLost
"""Failures of a queued call that a repetition may cure."""

_new = object.__new__


class _Kind(type):
    """Class of `Array`. Some libraries, such as tensorboardX, recognise JAX's arrays by the text of their type."""

    def __repr__(cls) -> str:
        return f"<class '{cls.__module__}.{cls.__qualname__}', an array of jax>"


class Array(Placement, Conversions, Operations, metaclass=_Kind):
    """Array on the daemon.

    The value stays there, and is copied to this process only when it is needed (`np.asarray`, `float`, printing). Such
    copies are read-only, as in JAX. Operators, indexing, `.at` and the methods of `jax.Array` run on the daemon and
    return arrays there. The daemon frees an array that has no handles left.

    Attributes:
        shape: a tuple of ints.
        dtype: a numpy dtype, including bfloat16 and similar types; JAX's own for typed PRNG keys.
        weak_type: whether JAX's promotion rules treat the array as a Python scalar.

    Example:
        >>> loss = step(params, x, y)
        >>> loss
        Array(0.25, dtype=float32)
        >>> float(loss)
        0.25
    """

    __slots__ = (
        "__dict__",  # JAX's arrays accept attributes, too
        "__weakref__",
        "_call",
        "_drops",
        "_generation",
        "_handle",
        "_local",
        "_session",
        "_siblings",
        "_value",
        "deleted",
        "place",
        "spec",
    )
    __array_priority__ = 100

    _session: Session
    _handle: int
    _generation: int
    _drops: Drops
    _value: HostArray | None
    _local: Any
    _siblings: "tuple[weakref.ref[Array], ...]"
    _call: Repeatable | None
    deleted: bool

    def __new__(cls, *_: object, **__: object) -> "Array":
        """Refuse to make an array, because only `make_handles` makes them."""
        raise TypeError("an Array cannot be created directly. Use jitclient.device_put.")

    def __del__(self) -> None:
        """Queue the handle to be dropped on the daemon. Runs inside garbage collections: no lock, no I/O."""
        session = self._session
        drops = session.drops
        if drops is self._drops:
            drops.append(self._handle)
            # Without a connection, drops go with the first message of the next one.
            if not session.background.awake and session.connection is not None:
                session.background.wake()

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return interop.class_in_jax(Array)

    def __dir__(self) -> list[str]:
        return [*dir(Array), *vars(self)]

    # ---- known without fetching

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the array's axes."""
        return self.spec.shape

    @property
    @api_boundary
    def dtype(self) -> Any:
        """Type of the array's elements."""
        if not is_key(self.spec):
            return dtype_named(self.spec.dtype)
        if "jax" not in sys.modules:
            raise TypeError(f"the dtype of typed PRNG keys, {self.spec.dtype}, exists only in jax. Import jax first.")
        return key_dtype(self.spec.dtype)

    @property
    def weak_type(self) -> bool:
        """Whether JAX's promotion rules treat the array as a Python scalar."""
        return self.spec.weak_type

    @property
    @api_boundary
    def aval(self) -> Any:
        """Abstract value of the array in jax."""
        if "jax" not in sys.modules:
            raise AttributeError("aval is an object of jax. Import jax first.")
        return aval_of(self.spec)

    @property
    def ndim(self) -> int:
        """Number of axes of the array."""
        return len(self.spec.shape)

    @property
    def size(self) -> int:
        """Number of elements of the array."""
        return int(np.prod(self.spec.shape, dtype=np.int64))

    @property
    def itemsize(self) -> int:
        """Bytes of one element of the array."""
        return int(self.dtype.itemsize)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements of the array."""
        return nbytes_of(self.spec)

    def is_deleted(self) -> bool:
        """Return whether the array was donated to a call, or deleted."""
        if self._local is not None and self._local.is_deleted():
            self.delete()
        return self.deleted

    def note_donation(self) -> None:
        """Record that a call has taken the array, as JAX would also take this process's copy."""
        self.deleted, self._value = True, None
        if self._local is not None:
            self._local.delete()

    @api_boundary
    def delete(self) -> None:
        """Free the array on the daemon. Later uses raise."""
        self.deleted = True
        self._value = self._local = None
        self.__del__()

    # ---- values

    @api_boundary
    def key_data(self) -> HostArray:
        """Return the data of typed PRNG keys: uint32, with one more axis."""
        return self._fetched()

    @api_boundary
    def block_until_ready(self) -> "Array":
        """Wait until the array is computed; return the array.

        Raises:
            BaseException: the call that should have computed the array raised it.
        """
        if self.is_deleted():
            raise runtime_error("INVALID_ARGUMENT: BlockHostUntilReady() called on deleted or donated buffer")
        if not self._is_here():
            self._ask([self], fetch=False)
        return self

    @api_boundary
    def is_ready(self) -> bool:
        """Return whether the array is computed."""
        self._check_alive()
        return self._is_here() or self._session.is_answered(self._handle)

    __hash__ = None  # type: ignore[assignment]  # as in JAX: the value could change under donation

    @api_boundary
    def __reduce__(self) -> Any:
        return by_value, (np.asarray(self._fetched()), self.spec)

    @api_boundary
    def in_process(self) -> Any:
        """Return the value as an array of this process's own jax if that is loaded, else of numpy.

        The object stays the same, so that a trace that uses it twice has one constant, and a call that donates it takes
        this array, too.
        """
        local = self._local
        if local is not None:
            return local  # if a call has taken its memory, jax raises what it raises for an array of its own
        self._check_alive()
        local = self.placed(by_value(self._fetched(), self.spec))
        if "jax" in sys.modules:
            # From now on, the value is there: memory for one is enough.
            self._local, self._value = local, None
        return local

    # ---- as an argument

    def is_at(self, session: Session) -> bool:
        """Return whether the daemon of `session` has the array."""
        return session is self._session and session.generation == self._generation and not self.is_deleted()

    def handle_in(self, session: Session) -> int | None:
        """Return the handle at the daemon of `session`, or None if the value must be sent there.

        Raises:
            ArrayLost: the array was lost with its daemon.
        """
        if self.deleted or self._local is not None:
            self._check_alive()
        if session is self._session and session.generation == self._generation:
            return self._handle
        if not self._is_here() and session is self._session:
            if self._call is not None and self._call.repeat():
                return self.handle_in(session)
            raise ArrayLost(f"{self._label()} was lost with its daemon: {session.why_lost}")
        return None

    def take_place_of(self, lost: "Array") -> None:
        """Exchange handles with a lost array of the same spec, whose call was repeated."""
        for name in ("_handle", "_generation", "_drops", "_value"):
            ours, theirs = getattr(self, name), getattr(lost, name)
            setattr(self, name, theirs)
            setattr(lost, name, ours)

    # ---- fetching

    def _fetched(self) -> HostArray:
        self._check_alive()
        if not self._is_here():
            self._ask([self, *self._unfetched_siblings()], fetch=True)
        value = self._value  # read once: another thread may make the array of this process meanwhile
        return self._of_local() if value is None else value

    def _ask(self, arrays: "Sequence[Array]", fetch: bool) -> None:
        """Wait until `arrays` are computed, of which this array is the first; if `fetch`, get all their values.

        Raises:
            ArrayLost: the array was lost with its daemon.
            BaseException: the call that should have computed this array raised it.
        """
        try:
            self._ask_once(arrays, fetch)
        except Exception as error:
            if not _may_be_repeated(error) or self._call is None or not self._call.repeat():
                raise
            if not fetch or self._value is None:
                self._ask_once([self], fetch)
        if fetch and self._call is not None:
            self._call.forget()

    def _ask_once(self, arrays: "Sequence[Array]", fetch: bool) -> None:
        session, handles = self._session, tuple([array._handle for array in arrays])
        specs = [array.spec for array in arrays] if fetch else []
        run = Run(fetch=handles) if fetch else Run(wait=handles)
        try:
            # A fetch changes nothing, so it may be repeated while the session exists.
            reply, values = with_retries(session, lambda: session.run(run, [], specs, self._generation), ATTEMPTS)
        except DaemonHangs:
            raise
        except (ArrayLost, DaemonUnavailable) as error:
            raise ArrayLost(f"{self._label()} was lost with its daemon: {error}") from error
        for array, value in zip(arrays, values, strict=False):  # no values without `fetch`
            if not isinstance(value, Failure):
                array._value = value
        failures = [failure for handles, failure in reply.failures if self._handle in handles]
        for failure in failures + [value for value in values[:1] if isinstance(value, Failure)]:
            raise self._lost(to_exception(failure))

    def _unfetched_siblings(self) -> "list[Array]":
        """Return the small results of the same call that are not fetched yet: they are likely to be fetched next."""
        siblings, self._siblings = [sibling() for sibling in self._siblings], ()
        alive = [array for array in siblings if array is not None and array is not self and not array.deleted]
        return [array for array in alive if not array._is_here()]

    def _is_here(self) -> bool:
        return self._value is not None or self._local is not None

    def _of_local(self) -> HostArray:
        """Return the value of this process's own array."""
        value = sys.modules["jax"].random.key_data(self._local) if is_key(self.spec) else self._local
        return np.asarray(value)

    def _lost(self, error: BaseException) -> BaseException:
        if isinstance(error, DaemonDraining):
            lost = ArrayLost(f"{self._label()} is lost with its daemon: {error}")
            lost.__cause__ = error
            return lost
        if isinstance(error, ProgramLost):
            # Another call then makes the daemon compile the program again.
            self._session.forget_programs()
        return as_exhausted(error) if isinstance(error, ArrayBudgetExceeded) else error

    def _check_alive(self) -> None:
        if self.is_deleted():
            raise RuntimeError(f"Array has been deleted with shape={self._short()}.")

    def _label(self) -> str:
        return f"Array with shape={self._short()}"

    def _short(self) -> str:
        return f"{self.spec.dtype}[{','.join(map(str, self.spec.shape))}]"


def _may_be_repeated(error: Exception) -> bool:
    """Return whether a call of values may succeed when it is made again. A full device has room after the failure."""
    return isinstance(error, _REPEATED) or str(error).startswith("RESOURCE_EXHAUSTED: ")


def make_handles(session: Session, first: int, specs: Iterable[Spec]) -> list[Array]:
    """Make consecutive handles for arrays of these specs. Called with the session's lock held.

    One function makes all results of a call: an `__init__` for each would make handles a tenth slower.
    """
    generation, drops = session.generation, session.drops
    arrays: list[Array] = []
    for handle, spec in enumerate(specs, first):
        array = _new(Array)
        array._session = session
        array._handle = handle
        array._generation = generation
        array._drops = drops
        array._value = array._local = array._call = array.place = None
        array._siblings = ()
        array.spec = spec
        array.deleted = False
        arrays.append(array)
    return arrays


def keep_call(arrays: Sequence[Array], again: Again, leaves: Sequence[Any]) -> None:
    """Let the results of a queued call make the call again if its daemon fails."""
    call = Repeatable(again, leaves, arrays)
    for array in arrays:
        array._call = call


def fetch_together(arrays: Sequence[Array]) -> None:
    """Make the first fetch of one of these small results of a call fetch all of them."""
    siblings = tuple(map(weakref.ref, arrays))
    for array in arrays:
        array._siblings = siblings


def by_value(value: HostArray, spec: Spec) -> Any:
    """Return an array of this process: of jax if loaded, else of numpy. Pickles and captures name this function."""
    jax = sys.modules.get("jax")
    if jax is None:
        return value
    # Keep 64-bit types: an array was narrowed when it was made, if at all. In plain JAX, this would be no transfer.
    with jax.ensure_compile_time_eval(), jax.enable_x64(True), jax.transfer_guard_host_to_device("allow"):
        array = jax.numpy.asarray(value)
        if is_key(spec):
            return jax.random.wrap_key_data(array, impl=KEY_IMPLEMENTATIONS[spec.dtype])
        place = sharding_of_type(spec.sharding)
        array = array if place is None else jax.device_put(array, place)
        return interop.weakly_typed(array) if spec.weak_type else array


interop.register_arrays(Array, lambda array: aval_of(array.spec), Array.in_process)
