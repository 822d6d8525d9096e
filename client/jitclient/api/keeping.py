"""Functions `keep` and `kept`: named arrays on the daemon, which the next run of a program finds."""

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
from jitclient.calls.where_to_trace import Facts, where_to_trace
from jitclient.capture.ambient import audit
from jitclient.capture.ambient.inputs import recorded_reads
from jitclient.capture.codec import values
from jitclient.capture.dump import Capture, capture
from jitclient.core.digests import array_digest, digest
from jitclient.core.notices import warn
from jitclient.core.settings import settings
from jitclient.core.tracebacks import api_boundary
from jitclient.errors import (
    ArrayBudgetExceeded,
    ArrayLost,
    CaptureError,
    DaemonLost,
    DaemonUnavailable,
    Incompatible,
    ProtocolError,
)
from jitclient.jaxside import client_device, context, own_jax, tree
from jitclient.jaxside.naming import shown
from jitclient.session import process
from jitclient.session.retry import ATTEMPTS, with_retries
from jitclient.session.session import Session
from jitclient.wire.array_transport import raw_bytes
from jitclient.wire.labels import of_spec
from jitclient.wire.messages import Spec, Verb
from jitclient.wire.named_arrays import Find, Forget, FoundArrays, Keep, KeptInfo

DAY = 24 * 3600.0
_MAX_LABEL_LENGTH = 200
_warned: set[str] = set()


@api_boundary
def keep(name: str, tree_or_function: Any, *, deps: Iterable[Any] | None = None, ttl: float | None = DAY) -> Any:
    """Keep a tree of arrays on the daemon under a name, beyond the exit of this process; return its handles.

    If given a function, run it (in this process, without arguments) only if the name does not hold a result of this
    same function: the next run of the program gets the handles without running it. A tree replaces the content of the
    name. An equal tree is not sent again, and leaves that live on the daemon are not copied.

    Args:
        name: name shared by all programs that use this daemon.
        tree_or_function: a tree of arrays, or a function that returns one. (A callable object that JAX treats as a
            tree, such as an equinox module, is a tree.)
        deps: inputs of the function apart from its code and captured values, as for `jit`: paths of files
            (`pathlib.Path`), names of environment variables (strings), other values. A function that reads undeclared
            inputs of these kinds runs each time, with one warning.
        ttl: time to live in seconds since the last use, after which the daemon removes the name; None: no limit.
            Holding a handle counts as a use.

    Returns:
        A tree of `jitclient.Array`. If a handle is donated or deleted, the name still holds its array.

    Raises:
        ArrayBudgetExceeded: the tree does not fit into the memory budget; the message lists the owners of the arrays.
        TypeError: a leaf is neither an array nor a scalar.
        BaseException: the function raised it.

    Example:
        >>> data = jitclient.keep("mnist", load, deps=[Path("mnist.npz")])
    """
    if not isinstance(name, str) or not name:
        raise TypeError(f"keep: the name must be a non-empty string; got {name!r}")
    if ttl is not None and not (isinstance(ttl, (int, float)) and 0 < ttl < math.inf):
        raise ValueError(f"keep: ttl must be a number of seconds above 0, or None; got {ttl!r}")
    if deps is not None and not _is_function(tree_or_function):
        raise TypeError("deps is only for functions; got a tree")
    make = functools.cache(tree_or_function) if _is_function(tree_or_function) else None
    if process.inside_daemon:
        return tree_or_function if make is None else make()
    own_jax.configure()
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
        _warn(name, f"keep({name!r}): the arrays stay in this process: {error}")
        here.count_local_run()
        return tree_or_function if make is None else make()


@api_boundary
def kept(name: str) -> Any:
    """Return handles of the arrays that any program keeps under a name; counts as a use.

    Raises:
        KeyError: the name does not exist.
        ArrayLost: the arrays could not be saved for a restart, or not be read after it; the message gives the reason.
        CaptureError: the tree has classes that this program cannot identify; `keep` with the function that made the
            tree can find it.

    Example:
        >>> params = jitclient.kept("best")
    """
    found = _find(process.session(), _Name(name))
    if found is None:
        raise KeyError(name)
    arrays, node = found
    try:
        return tree.unflattener_of_sent(tree.decode(node, values.no_deref))(arrays)
    except ProtocolError as error:
        raise CaptureError(f"{name!r} holds a tree with classes that this program cannot identify: {error}") from error


def _is_function(thing: Any) -> bool:
    """Return whether to call `thing`: a callable that jax treats as a tree counts as a tree."""
    return callable(thing) and tree.structure_of(tree.flatten(thing)[1]) is tree.LEAF


# ---- trees


def _of_tree(here: Session, name: str, value: Any, ttl: float | None) -> Any:
    """Return handles of the leaves of a tree; send the leaves only if the name does not hold equal ones."""
    flat = _flat(name, value, context.current())
    wanted = _Name(name, flat.key(), ttl=ttl)
    found = _find(here, wanted)
    try:
        node = tree.encode(flat.structure)
    except CaptureError:
        # The tree has classes that other programs cannot decode.
        node = tree.UNKNOWN
    return tree.unflattener_of_sent(flat.structure)(found[0] if found else _publish(here, wanted, flat, node))


@dataclasses.dataclass(frozen=True)
class _Flat:
    """Flattened tree: its structure, and its leaves and their specs in wire order."""

    structure: tree.Structure
    leaves: Sequence[Any]
    specs: tuple[Spec, ...]

    @property
    def label(self) -> str:
        """Text form of the tree: `{'w': f32[8,8]}`."""
        return shown(self.structure, map(of_spec, self.specs))

    def key(self) -> str:
        """Return the key of the tree by its content; empty if part of the content is on the daemon."""
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
        where = f"leaf {path}" if path else "the tree"
        raise TypeError(f"keep({name!r}): {where} is neither an array nor a scalar, but of type {error}") from None


# ---- functions


def _of_function(
    here: Session, name: str, fun: Callable[[], Any], make: Callable[[], Any], deps: Deps | None, ttl: float | None
) -> Any:
    """Return handles of the function's kept result, or of its new result if none is kept."""
    settings_now = context.current()
    try:
        where_to_trace(Facts(setting=context.uncarried(settings_now))).raise_if_here()
        inputs = deps.now() if deps is not None else ()
        captured = capture(fun, tuple(found.extra for found in inputs), allow_ambient=deps is not None)
    except CaptureError as error:
        return _keep_uncached(here, name, make(), ttl, error)
    encoded = tuple((setting, values.encode(value)) for setting, value in settings_now)
    wanted = _Name(name, f"function {_digest((captured.key, encoded))}", captured.packages, ttl)
    found = _found(here, wanted, captured)
    if found is not None:
        return found[0]
    value, reads = _recording_reads(make)
    if reads and deps is None:
        return _keep_uncached(here, name, value, ttl, reads[0])
    if deps is not None and not deps.still(inputs):
        return _keep_uncached(here, name, value, ttl, "the declared inputs changed during the run")
    flat = _flat(name, value, settings_now)
    try:
        node = tree.encode(flat.structure, captured.index_of)
    except CaptureError as error:
        return _keep_uncached(here, name, value, ttl, error)
    # Look again: another process may have kept the result while the function ran.
    found = _found(here, wanted, captured)
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
    except (CaptureError, ProtocolError, LookupError):
        # Only the function loads the classes of this tree, so treat the name as a miss.
        return None


def _replacing(here: Session, wanted: "_Name", flat: _Flat, node: bytes) -> list[Array]:
    """Publish a tree, even if the budget cannot hold it together with the previous one."""
    try:
        return _publish(here, wanted, flat, node)
    except ArrayBudgetExceeded:
        if not here.ask(Verb.FORGET, Forget(wanted.text), list[KeptInfo], ATTEMPTS):
            raise
    return _publish(here, wanted, flat, node)


def _recording_reads(make: Callable[[], Any]) -> tuple[Any, list[str]]:
    audit.install_hook()
    with recorded_reads() as reads:
        return make(), reads


def _keep_uncached(here: Session, name: str, value: Any, ttl: float | None, why: object) -> Any:
    """Keep the result of a function that must run each time, and warn of the reason."""
    _warn(
        name,
        f"keep({name!r}): the function runs each time, because its result may change: {why}. "
        "Declare the inputs with deps=[Path(...), ...], or pass deps=[] to ignore them.",
    )
    return _of_tree(here, name, value, ttl)


def _warn(name: str, text: str) -> None:
    if name not in _warned:
        _warned.add(name)
        warn(text)


# ---- names on the daemon


@dataclasses.dataclass(frozen=True)
class _Name:
    """Name on the daemon, and the content that it should have."""

    text: str
    key: str | None = None  # key of the content; None matches any, "" none
    packages: tuple[str, ...] = ()  # packages whose versions are part of the key
    ttl: float | None = None


def _find(session: Session, name: _Name) -> tuple[list[Array], bytes] | None:
    """Return handles of the arrays under a name, and its encoded tree; None if its key does not match."""

    def ask() -> tuple[list[Array], bytes] | None:
        with session:
            first = session.new_handles(0)
            message = Find(name.text, name.key, name.packages, first, name.ttl)
            # No retry here: after a new connection, the handles start elsewhere.
            found: FoundArrays | None = session.ask_once(Verb.FIND, message, FoundArrays | None)
            if found is None:
                return None
            session.new_handles(len(found.specs))
            return make_handles(session, first, found.specs), found.tree

    return None if name.key == "" else with_retries(session, ask, ATTEMPTS)


def _publish(session: Session, name: _Name, flat: _Flat, node: bytes) -> list[Array]:
    """Store these leaves under a name in place of its previous content; return handles of them."""
    label, specs = flat.label, flat.specs
    label = label if len(label) <= _MAX_LABEL_LENGTH else f"{label[: _MAX_LABEL_LENGTH - 1]}…"

    def ask() -> list[Array]:
        with session:
            arrays = put(session, flat.leaves, specs)
            # None of the handles is missing: `put` has just sent all of the arrays.
            handles = cast("tuple[int, ...]", tuple(array.handle_in(session) for array in arrays))
            generation = session.generation
            message = Keep(name.text, name.key or "", name.packages, specs, node, label, handles, name.ttl)
            try:
                session.ask(Verb.KEEP, message, None)
            except ArrayLost as error:
                if session.generation == generation:
                    raise
                raise DaemonLost("the daemon exited while it received a tree") from error
            return arrays

    return with_retries(session, ask, ATTEMPTS)


def _digest(value: Any) -> str:
    return digest(msgspec.msgpack.encode(value), 20).hex()
