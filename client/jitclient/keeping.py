"""`keep` and `kept`: trees on the daemon under a name, which the next run of a program finds there."""

import functools
import math
from collections.abc import Callable, Iterable
from typing import Any

from jitclient.arrays.array import Array
from jitclient.calls import names
from jitclient.calls.arguments import NotAnArray, specs_of
from jitclient.calls.deps import Deps, Input
from jitclient.calls.names import Name
from jitclient.codec import values
from jitclient.codec.ambient import world
from jitclient.codec.ambient.inputs import noted_reads
from jitclient.codec.capture import Capture, capture
from jitclient.errors import ArrayBudgetExceeded, CaptureError, DaemonUnavailable, Incompatible, ProtocolError
from jitclient.local_jax import client_device, context
from jitclient.notices.warned import warn
from jitclient.sessions import process
from jitclient.sessions.session import Session
from jitclient.settings import settings
from jitclient.trees import tree
from jitclient.wire.messages import Spec

DAY = 24 * 3600.0
_warned: set[str] = set()


def keep(name: str, tree_or_function: Any, *, deps: Iterable[Any] | None = None, ttl: float | None = DAY) -> Any:
    """Keeps a tree of arrays on the daemon under a name, also when this process has ended, and returns its handles.

    A function runs, in this process and without arguments, only where the name does not hold what that very function
    returned: the next run of the program has the handles at once. A tree replaces what the name holds; one that is the
    same already is not sent again, and leaves that live on the daemon are not copied.

    Args:
        name: every program of yours that talks to this daemon means the same by it.
        tree_or_function: a tree of arrays, or a function that returns one. (What is callable and a tree to JAX, such as
            a module of equinox, is a tree.)
        deps: what the function reads besides its code and captured values, as for `jit`: paths of files
            (`pathlib.Path`), names of variables of the environment (strings), other values. A function that is seen to
            read such things and does not say so runs each time, with one warning.
        ttl: seconds without a use after which the daemon forgets the name; None: it never does. To hold a handle is a
            use.

    Returns:
        A tree of `jitclient.Array`. What is donated or deleted is a handle: the name still holds its array.

    Raises:
        ArrayBudgetExceeded: the daemon has no room for the tree; the message says who holds what.
        TypeError: a leaf is neither array nor scalar.
        BaseException: what the function raised.

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
        _warn(name, f"{name!r} is kept nowhere, and what it is to hold stays in this process: {error}")
        here.count_local_run()
        return tree_or_function if make is None else make()


def kept(name: str) -> Any:
    """Handles on what a name holds, whoever kept it; to ask is a use.

    Raises:
        KeyError: it holds nothing.
        CaptureError: it holds a tree of classes that this program cannot name: `keep` with the function that made it
            finds it all the same.

    Example:
        >>> params = jitclient.kept("best")
    """
    found = names.find(process.session(), Name(name, None, (), None))
    if found is None:
        raise KeyError(name)
    arrays, node = found
    try:
        return tree.unflattener_of_sent(tree.decode(node, values.nothing))(arrays)
    except ProtocolError as error:
        raise CaptureError(f"{name!r} holds a tree of classes that this program cannot name: {error}") from error


def _is_function(thing: Any) -> bool:
    """Whether it is to be called: what jax knows as a tree is none, also if it can be."""
    return callable(thing) and tree.structure_of(tree.flatten(thing)[1]) is tree.LEAF


# ---- trees


def _of_tree(here: Session, name: str, value: Any, ttl: float | None) -> Any:
    """Handles on the leaves of a tree, which are there already if the name holds the same ones."""
    leaves, structure, specs = _flat(name, value, context.current())
    label = names.label_of(structure, specs)
    wanted = Name(name, names.key_of_leaves(label, leaves, specs), (), ttl)
    found = names.find(here, wanted)
    arrays = found[0] if found is not None else names.publish(here, wanted, leaves, specs, _node(structure), label)
    return tree.unflattener_of_sent(structure)(arrays)


def _node(structure: tree.Structure) -> bytes:
    """The tree in words that any program may know."""
    try:
        return tree.encode(structure)
    except CaptureError:
        return tree.UNKNOWN


def _flat(name: str, value: Any, settings_now: context.Context) -> tuple[list[Any], tree.Structure, tuple[Spec, ...]]:
    """The leaves of a tree and their specs as they travel, and its structure."""
    leaves, shape = tree.flatten(value)
    structure = tree.structure_of(shape)
    try:
        specs = specs_of(leaves, context.x64(settings_now))
        order = tree.leaf_order(structure)
        return list(tree.as_sent(leaves, order)), structure, tuple(tree.as_sent(specs, order))
    except NotAnArray as error:
        path = list(tree.paths(structure))[error.number]
        where = f"its leaf {path}" if path else "it"
        raise TypeError(f"{name!r} cannot be kept: {where} is no array or scalar, but of type {error}") from None


# ---- functions


def _of_function(
    here: Session, name: str, fun: Callable[[], Any], make: Callable[[], Any], deps: Deps | None, ttl: float | None
) -> Any:
    """Handles on what a function returned at some time, or returns now."""
    settings_now = context.current()
    try:
        captured, inputs = _captured(fun, deps, settings_now)
    except CaptureError as error:
        return _anew(here, name, make(), ttl, error)
    wanted = Name(name, names.key_of_function(captured, settings_now), captured.packages, ttl)
    found = _found(here, wanted, captured)
    if found is not None:
        return found[0]
    value, reads = _noting_reads(make)
    if reads and deps is None:
        return _anew(here, name, value, ttl, reads[0])
    if deps is not None and not deps.still(inputs):
        return _anew(here, name, value, ttl, "its declared inputs changed while it ran")
    leaves, structure, specs = _flat(name, value, settings_now)
    try:
        node = tree.encode(structure, captured.index_of)
    except CaptureError as error:
        return _anew(here, name, value, ttl, error)
    found = _found(here, wanted, captured)  # another process may have been quicker
    if found is not None:
        return found[0]
    publish = functools.partial(names.publish, here, wanted, leaves, specs, node, names.label_of(structure, specs))
    return tree.unflattener_of_sent(structure)(_replacing(here, wanted, publish))


def _captured(
    fun: Callable[[], Any], deps: Deps | None, settings_now: context.Context
) -> tuple[Capture, tuple[Input, ...]]:
    """What decides the tree that a function makes, and the declared inputs in it.

    Raises:
        CaptureError: nothing can say that.
    """
    context.check_carried(settings_now)
    inputs = deps.now() if deps is not None else ()
    return capture(fun, tuple(found.extra for found in inputs), allow_ambient=deps is not None), inputs


def _found(here: Session, wanted: Name, captured: Capture) -> tuple[Any] | None:
    found = names.find(here, wanted)
    if found is None:
        return None
    arrays, node = found
    try:
        structure = tree.decode(node, captured.object_at)
        return (tree.unflattener_of_sent(structure)(arrays),)
    except (CaptureError, ProtocolError, LookupError):  # of classes that only the function itself loads
        return None


def _replacing(here: Session, wanted: Name, publish: Callable[[], list[Array]]) -> list[Array]:
    """What a name is to hold from now on, also where there is no room for that beside what it held."""
    try:
        return publish()
    except ArrayBudgetExceeded:
        if not names.forget(here, wanted):
            raise
    return publish()


def _noting_reads(make: Callable[[], Any]) -> tuple[Any, list[str]]:
    world.watch()
    with noted_reads() as reads:
        return make(), reads


def _anew(here: Session, name: str, value: Any, ttl: float | None, why: object) -> Any:
    """Keeps what a function returned that must run each time."""
    _warn(
        name,
        f"the function that makes {name!r} runs each time, as nothing tells whether it would return the same: {why}. "
        "Name what it reads: keep(..., deps=[Path(...), ...]); deps=[] says that it does not matter",
    )
    return _of_tree(here, name, value, ttl)


def _warn(name: str, text: str) -> None:
    if name not in _warned:
        _warned.add(name)
        warn(text, RuntimeWarning)
