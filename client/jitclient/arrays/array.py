"""The client's handle on an array that lives on the daemon."""

import sys
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from jitclient.arrays.conversions import Conversions
from jitclient.arrays.operations import Operations
from jitclient.errors import ArrayLost, DaemonDraining, DaemonUnavailable, ProgramLost
from jitclient.local_jax import interop
from jitclient.local_jax.avals import KEY_IMPLEMENTATIONS, aval_of, key_dtype
from jitclient.local_jax.placement import Placement
from jitclient.sessions.drops import Drops
from jitclient.sessions.failures import to_exception
from jitclient.sessions.retry import ATTEMPTS
from jitclient.sessions.session import Session
from jitclient.wire.array_transport import HostArray, dtype_named, is_key, nbytes_of
from jitclient.wire.messages import Failure, Run, Spec

FETCHED_WITH_CALL = 64 << 10
"""Results up to so many bytes in all come back with the answer to their call."""

_new = object.__new__


class Array(Placement, Conversions, Operations):
    """An array on the daemon. It stays there until a look (`np.asarray`, `float`, printing) fetches its value, which
    is read-only, as JAX's are. What gives arrays (operators, indexing, `.at`, the methods of `jax.Array`) happens on
    the daemon and gives arrays there. When the last handle goes, the daemon frees the array.

    Attributes:
        shape: a tuple of ints.
        dtype: a numpy dtype, bfloat16 and its kin included; JAX's own for typed PRNG keys.
        weak_type: whether JAX's promotion rules treat it as a Python scalar's.

    Example:
        >>> loss = step(params, x, y)
        >>> loss
        Array(0.25, dtype=float32)
        >>> float(loss)
        0.25
    """

    __slots__ = (
        "__dict__",  # JAX's arrays take attributes, too
        "__weakref__",
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
    _local: weakref.ref[Any] | None
    _siblings: "tuple[weakref.ref[Array], ...]"
    deleted: bool

    def __new__(cls, *_: object, **__: object) -> "Array":
        """Refuses: `make_handles` makes them."""
        raise TypeError("an Array stands for one on the daemon: jitclient.device_put makes both")

    def __del__(self) -> None:
        """Tells the daemon, soon, that nobody holds it. Runs inside garbage collections: no lock, no I/O."""
        session = self._session
        drops = session.drops
        if drops is self._drops:
            drops.append(self._handle)
            # Where there is no connection, they go with the first message of the next.
            if not session.background.awake and session.connection is not None:
                session.background.wake()

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return interop.class_in_jax(Array)

    # ---- what is known without a look

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of its axes."""
        return self.spec.shape

    @property
    def dtype(self) -> Any:
        """The type of its elements."""
        if not is_key(self.spec):
            return dtype_named(self.spec.dtype)
        if "jax" not in sys.modules:
            raise TypeError(f"the dtype of typed PRNG keys, {self.spec.dtype}, is one that only jax has: import jax")
        return key_dtype(self.spec.dtype)

    @property
    def weak_type(self) -> bool:
        """Whether JAX's promotion rules treat it as a Python scalar's."""
        return self.spec.weak_type

    @property
    def aval(self) -> Any:
        """What jax traces in place of it."""
        if "jax" not in sys.modules:
            raise AttributeError("aval is said in jax's words: import jax")
        return aval_of(self.spec)

    @property
    def ndim(self) -> int:
        """How many axes it has."""
        return len(self.spec.shape)

    @property
    def size(self) -> int:
        """How many elements it has."""
        return int(np.prod(self.spec.shape, dtype=np.int64))

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return int(self.dtype.itemsize)

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        return nbytes_of(self.spec)

    def is_deleted(self) -> bool:
        """Whether it was donated to a call, or deleted."""
        return self.deleted

    def delete(self) -> None:
        """Has the daemon free it now. Whatever uses it later raises."""
        self.deleted = True
        self._value = None
        self.__del__()

    # ---- looks

    def key_data(self) -> HostArray:
        """The words behind typed PRNG keys, uint32 with one axis more."""
        return self._fetched()

    def block_until_ready(self) -> "Array":
        """Waits until it is computed; returns itself.

        Raises:
            BaseException: what the call raised that should have made it.
        """
        self._check_alive()
        if self._value is None:
            self._ask([self], fetch=False)
        return self

    def is_ready(self) -> bool:
        """Whether it is computed."""
        self._check_alive()
        return self._value is not None or self._session.is_answered(self._handle)

    __hash__ = None  # type: ignore[assignment]  # as in JAX: its value could change under donation

    def __reduce__(self) -> Any:
        return by_value, (np.asarray(self._fetched()), self.spec)

    def in_process(self) -> Any:
        """Its value as an array of this process's own jax, if that is loaded; or else of numpy.

        The same one as long as somebody holds it, so that a trace that uses it twice has one constant.
        """
        self._check_alive()
        local = self._local() if self._local is not None else None
        if local is None or local.is_deleted():
            local = by_value(self._fetched(), self.spec)
            self._local = weakref.ref(local) if "jax" in sys.modules else None
        return local

    # ---- as an argument

    def is_at(self, session: Session) -> bool:
        """Whether the daemon of `session` has it."""
        return session is self._session and session.generation == self._generation and not self.deleted

    def handle_in(self, session: Session) -> int | None:
        """Its name at the daemon of `session`, or None where only its value can be sent there.

        Raises:
            RuntimeError: it was donated.
            ArrayLost: its daemon is gone, and its value was never fetched.
        """
        if self.deleted:
            self._check_alive()
        if session is self._session and session.generation == self._generation:
            return self._handle
        if self._value is None and session is self._session:
            raise ArrayLost(f"{self._label()} was lost with its daemon: {session.why_lost}")
        return None

    # ---- fetching

    def _fetched(self) -> HostArray:
        self._check_alive()
        if self._value is None:
            self._ask([self, *self._others()], fetch=True)
        assert self._value is not None
        return self._value

    def _ask(self, arrays: "Sequence[Array]", fetch: bool) -> None:
        """Waits until this array, the first of some, is computed; with `fetch`, all of them get their values."""
        session, handles = self._session, tuple([array._handle for array in arrays])
        specs = [array.spec for array in arrays] if fetch else []
        run = Run(fetch=handles) if fetch else Run(wait=handles)
        try:
            # A look changes nothing: it may be repeated, where the session lives on.
            done, values = session.retrying(lambda: session.run(run, [], specs, self._generation), repeats=ATTEMPTS)
        except (ArrayLost, DaemonUnavailable) as error:
            raise ArrayLost(f"{self._label()} was lost with its daemon: {error}") from error
        for array, value in zip(arrays, values, strict=False):  # there are none where we only wait
            if not isinstance(value, Failure):
                array._value = value
        failures = [failure for handle, failure in done.failures if handle == self._handle]
        for failure in failures + [value for value in values[:1] if isinstance(value, Failure)]:
            raise self._lost(to_exception(failure))

    def _others(self) -> "list[Array]":
        """Small results of the same call that may be looked at next."""
        mates, self._siblings = [mate() for mate in self._siblings], ()
        return [
            mate for mate in mates if mate is not None and mate is not self and mate._value is None and not mate.deleted
        ]

    def _lost(self, error: BaseException) -> BaseException:
        if isinstance(error, DaemonDraining):
            lost = ArrayLost(f"{self._label()} is lost with its daemon: {error}")
            lost.__cause__ = error
            return lost
        if isinstance(error, ProgramLost):
            self._session.forget_programs()  # so that to call it again helps
        return error

    def _check_alive(self) -> None:
        if self.deleted:
            raise RuntimeError(f"Array has been deleted with shape={self._short()}.")

    def _label(self) -> str:
        return f"Array with shape={self._short()}"

    def _short(self) -> str:
        return f"{self.spec.dtype}[{','.join(map(str, self.spec.shape))}]"


def make_handles(session: Session, first: int, specs: Iterable[Spec]) -> list[Array]:
    """Handles on arrays of those specs, whose names follow each other. Called with the session's lock.

    One function for all of a call: with an `__init__` for each, a handle's life costs a tenth more.
    """
    generation, drops = session.generation, session.drops
    arrays: list[Array] = []
    for handle, spec in enumerate(specs, first):
        array = _new(Array)
        array._session = session
        array._handle = handle
        array._generation = generation
        array._drops = drops
        array._value = array._local = array.place = None
        array._siblings = ()
        array.spec = spec
        array.deleted = False
        arrays.append(array)
    return arrays


def fetch_together(arrays: Sequence[Array]) -> None:
    """Small results of one call: a look at the first of them fetches all."""
    mates = tuple(map(weakref.ref, arrays))
    for array in arrays:
        array._siblings = mates


def by_value(value: HostArray, spec: Spec) -> Any:
    """An array in this process: jax's where jax is loaded, or else numpy's. What pickling and captures hold."""
    jax = sys.modules.get("jax")
    if jax is None:
        return value
    # Its dtype is what it is: where 64 bits are off it was narrowed when it was made, if it was to be.
    with jax.ensure_compile_time_eval(), jax.enable_x64(True):
        array = jax.numpy.asarray(value)
        if is_key(spec):
            return jax.random.wrap_key_data(array, impl=KEY_IMPLEMENTATIONS[spec.dtype])
        return interop.weakly_typed(array) if spec.weak_type else array


interop.introduce(Array, lambda array: aval_of(array.spec), Array.in_process)
