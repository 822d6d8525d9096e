"""`keep` and `kept`: named arrays on the daemon, which the next run of a program finds."""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import msgspec

from jitclient.arrays.array import Array, make_handles
from jitclient.calls.arguments import NotAnArray, specs_of, value_of
from jitclient.calls.deps import Deps
from jitclient.calls.puts import put
from jitclient.capture.ambient import world
from jitclient.capture.ambient.inputs import noted_reads
from jitclient.capture.codec import values
from jitclient.capture.dump import Capture, capture
from jitclient.core.digests import array_digest, digest
from jitclient.core.notices import warn
from jitclient.core.settings import settings
from jitclient.errors import (
    ArrayBudgetExceeded,
    ArrayLost,
    CaptureError,
    DaemonLost,
    DaemonUnavailable,
    Incompatible,
    ProtocolError,
)
from jitclient.jaxside import client_device, context, tree
from jitclient.jaxside.naming import shown
from jitclient.session import process
from jitclient.session.retry import ATTEMPTS
from jitclient.session.session import Session
from jitclient.wire.array_transport import raw_bytes
from jitclient.wire.labels import of_spec
from jitclient.wire.messages import Spec, Verb
from jitclient.wire.named_arrays import Find, Forget, Found, Keep, KeptInfo

DAY = 24 * 3600.0
_LONGEST_LABEL = 200
_warned: set[str] = set()


def keep(name: str, tree_or_function: Any, *, deps: Iterable[Any] | None = None, ttl: float | None = DAY) -> Any:
    """Keeps a tree of arrays on the daemon under a name, also after this process has ended; returns its handles.

    A function runs (in this process, without arguments) only if the name does not hold what this same function
    returned: the next run of the program gets the handles at once. A tree replaces what the name holds. If it is the
    same, it is not sent again, and leaves that live on the daemon are not copied.

    Args:
        name: shared by all programs that use this daemon.
        tree_or_function: a tree of arrays, or a function that returns one. (An object that is callable and also a tree
            to JAX, such as an equinox module, is a tree.)
        deps: what the function reads apart from its code and captured values, as for `jit`: paths of files
            (`pathlib.Path`), names of environment variables (strings), other values. A function that reads such things
            and does not declare them runs each time, with one warning.
        ttl: time to live in seconds since the last use, after which the daemon removes the name; None: for ever.
            Holding a handle counts as a use.

    Returns:
        A tree of `jitclient.Array`. If one is donated or deleted, the name still holds its array.

    Raises:
        ArrayBudgetExceeded: the tree does not fit into the memory budget; the message says who holds what.
        TypeError: a leaf is neither an array nor a scalar.
        BaseException: the function raised it.

    Example:
        >>> data = jitclient.keep("mnist", load, deps=[Path("mnist.npz")])
    """
    if not isinstance(name, str) or not name:
        raise TypeError(f"a name must be a string that is not empty; got {name!r}")
    if ttl is not None and not (isinstance(ttl, (int, float)) and 0 < ttl < math.inf):
        raise ValueError(f"ttl must be a number of seconds above 0, or None; got {ttl!r}")
    if deps is not None and not _is_function(tree_or_function):
        raise TypeError("deps says what a function reads; a tree reads nothing")
    make = functools.cache(tree_or_function) if _is_function(tree_or_function) else None
    if process.inside_daemon:
        return tree_or_function if make is None else make()
    client_device.pin()
    declared, here = Deps.of(deps), process.session()
    ttl = None if ttl is None else float(ttl)
    try:
        if make is None:
            return _of_tree(here, name, tree_or_function, ttl)
        return _of_function(here, name, tree_or_function, make, declared, ttl)
    except (DaemonUnavailable, Incompatible) as error:
        if settings().fallback == "error":
            raise
        if isinstance(error, DaemonUnavailable):
            client_device.release()
        _warn(name, f"{name!r} cannot be kept, and its arrays stay in this process: {error}")
        here.count_local_run()
        return tree_or_function if make is None else make()


def kept(name: str) -> Any:
    """Handles on the arrays under a name, from any program. Counts as a use.

    Raises:
        KeyError: there is no such name.
        ArrayLost: its arrays could not be saved for a restart, or not be read after it; the message says why.
        CaptureError: its tree has classes that this program cannot identify; `keep` with the function that made it
            can find it.

    Example:
        >>> params = jitclient.kept("best")
    """
    found = _find(process.session(), _Name(name))
    if found is None:
        raise KeyError(name)
    arrays, node = found
    try:
        return tree.unflattener_of_sent(tree.decode(node, values.nothing))(arrays)
    except ProtocolError as error:
        raise CaptureError(f"{name!r} holds a tree with classes that this program cannot identify: {error}") from error


def _is_function(thing: Any) -> bool:
    """Whether to call it: a callable that jax knows as a tree is a tree."""
    return callable(thing) and tree.structure_of(tree.flatten(thing)[1]) is tree.LEAF


# ---- trees


def _of_tree(here: Session, name: str, value: Any, ttl: float | None) -> Any:
    """Handles on the leaves of a tree, which are not sent if the name holds the same ones."""
    flat = _flat(name, value, context.current())
    wanted = _Name(name, flat.key(), ttl=ttl)
    found = _find(here, wanted)
    try:
        node = tree.encode(flat.structure)
    except CaptureError:  # not in a form that any program may decode
        node = tree.UNKNOWN
    return tree.unflattener_of_sent(flat.structure)(found[0] if found else _publish(here, wanted, flat, node))


@dataclasses.dataclass(frozen=True)
class _Flat:
    """A tree, with its leaves and their specs in wire order."""

    structure: tree.Structure
    leaves: Sequence[Any]
    specs: tuple[Spec, ...]

    @property
    def label(self) -> str:
        """The tree as text: `{'w': f32[8,8]}`."""
        return shown(self.structure, map(of_spec, self.specs))

    def key(self) -> str:
        """The key of the tree by its content; empty if some of that is on the daemon."""
        if any(type(leaf) is Array for leaf in self.leaves):
            return ""
        contents = [array_digest(raw_bytes(value_of(*pair))) for pair in zip(self.leaves, self.specs, strict=True)]
        return f"tree {_digest((self.label, list(self.specs), contents))}"


def _flat(name: str, value: Any, settings_now: context.Context) -> _Flat:
    leaves, shape = tree.flatten(value)
    structure = tree.structure_of(shape)
    try:
        specs = specs_of(leaves, context.x64(settings_now))
        order = tree.leaf_order(structure)
        return _Flat(structure, tree.as_sent(leaves, order), tuple(tree.as_sent(specs, order)))
    except NotAnArray as error:
        path = list(tree.paths(structure))[error.number]
        where = f"its leaf {path}" if path else "it"
        raise TypeError(f"{name!r} cannot be kept: {where} is no array or scalar, but of type {error}") from None


# ---- functions


def _of_function(
    here: Session, name: str, fun: Callable[[], Any], make: Callable[[], Any], deps: Deps | None, ttl: float | None
) -> Any:
    """Handles on what a function returned earlier, or returns now."""
    settings_now = context.current()
    try:
        context.check_carried(settings_now)
        inputs = deps.now() if deps is not None else ()
        captured = capture(fun, tuple(found.extra for found in inputs), allow_ambient=deps is not None)
    except CaptureError as error:
        return _anew(here, name, make(), ttl, error)
    encoded = tuple((setting, values.encode(value)) for setting, value in settings_now)
    wanted = _Name(name, f"function {_digest((captured.key, encoded))}", captured.packages, ttl)
    found = _found(here, wanted, captured)
    if found is not None:
        return found[0]
    value, reads = _noting_reads(make)
    if reads and deps is None:
        return _anew(here, name, value, ttl, reads[0])
    if deps is not None and not deps.still(inputs):
        return _anew(here, name, value, ttl, "its declared inputs changed while it ran")
    flat = _flat(name, value, settings_now)
    try:
        node = tree.encode(flat.structure, captured.index_of)
    except CaptureError as error:
        return _anew(here, name, value, ttl, error)
    found = _found(here, wanted, captured)  # another process may have kept it meanwhile
    if found is not None:
        return found[0]
    return tree.unflattener_of_sent(flat.structure)(_replacing(here, wanted, flat, node))


def _found(here: Session, wanted: "_Name", captured: Capture) -> tuple[Any] | None:
    found = _find(here, wanted)
    if found is None:
        return None
    arrays, node = found
    try:
        structure = tree.decode(node, captured.object_at)
        return (tree.unflattener_of_sent(structure)(arrays),)
    except (CaptureError, ProtocolError, LookupError):  # its classes are loaded by the function only
        return None


def _replacing(here: Session, wanted: "_Name", flat: _Flat, node: bytes) -> list[Array]:
    """Publish a tree even if the budget cannot hold it together with the previous one."""
    try:
        return _publish(here, wanted, flat, node)
    except ArrayBudgetExceeded:
        if not here.retrying(lambda: here.ask(Verb.FORGET, Forget(wanted.text), list[KeptInfo]), ATTEMPTS):
            raise
    return _publish(here, wanted, flat, node)


def _noting_reads(make: Callable[[], Any]) -> tuple[Any, list[str]]:
    world.watch()
    with noted_reads() as reads:
        return make(), reads


def _anew(here: Session, name: str, value: Any, ttl: float | None, why: object) -> Any:
    """Keeps the result of a function that must run each time."""
    _warn(
        name,
        f"the function that makes {name!r} runs each time, as its result may change: {why}. "
        "Declare what it reads: keep(..., deps=[Path(...), ...]), or deps=[] if that does not matter",
    )
    return _of_tree(here, name, value, ttl)


def _warn(name: str, text: str) -> None:
    if name not in _warned:
        _warned.add(name)
        warn(text)


# ---- names on the daemon


@dataclasses.dataclass(frozen=True)
class _Name:
    """A name at the daemon, and what it should hold."""

    text: str
    key: str | None = None  # of its content; None matches any; an empty one matches none
    packages: tuple[str, ...] = ()  # whose versions are part of the key
    ttl: float | None = None


def _find(session: Session, name: _Name) -> tuple[list[Array], bytes] | None:
    """Handles on what a name holds, and its encoded tree, if its key matches."""

    def ask() -> tuple[list[Array], bytes] | None:
        with session:
            first = session.new_handles(0)
            message = Find(name.text, name.key, name.packages, first, name.ttl)
            found: Found | None = session.ask(Verb.FIND, message, Found | None)
            if found is None:
                return None
            session.new_handles(len(found.specs))
            return make_handles(session, first, found.specs), found.tree

    return None if name.key == "" else session.retrying(ask, ATTEMPTS)


def _publish(session: Session, name: _Name, flat: _Flat, node: bytes) -> list[Array]:
    """Have a name hold these leaves instead of what it held; return handles on them."""
    label, specs = flat.label, flat.specs
    label = label if len(label) <= _LONGEST_LABEL else f"{label[: _LONGEST_LABEL - 1]}…"

    def ask() -> list[Array]:
        with session:
            arrays = put(session, flat.leaves, specs)
            handles = cast("tuple[int, ...]", tuple(array.handle_in(session) for array in arrays))  # all are there now
            generation = session.generation
            message = Keep(name.text, name.key or "", name.packages, specs, node, label, handles, name.ttl)
            try:
                session.ask(Verb.KEEP, message, None)
            except ArrayLost as error:
                if session.generation == generation:
                    raise
                raise DaemonLost("the daemon ended while a tree was on its way there") from error
            return arrays

    return session.retrying(ask, ATTEMPTS)


def _digest(value: Any) -> str:
    return digest(msgspec.msgpack.encode(value), 20).hex()
