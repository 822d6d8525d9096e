"""Named arrays on the daemon: find, publish, forget."""

import dataclasses
from collections.abc import Sequence
from typing import Any, cast

import msgspec

from jitclient.arrays.array import Array, make_handles
from jitclient.calls.arguments import value_of
from jitclient.calls.puts import put
from jitclient.codec import values
from jitclient.codec.capture import Capture
from jitclient.digests import array_digest, digest
from jitclient.errors import ArrayLost, DaemonLost
from jitclient.local_jax.context import Context
from jitclient.notices.labels import of_spec
from jitclient.sessions.retry import ATTEMPTS
from jitclient.sessions.session import Session
from jitclient.trees import tree
from jitclient.trees.naming import shown
from jitclient.wire.array_transport import raw_bytes
from jitclient.wire.messages import Spec, Verb
from jitclient.wire.named_arrays import Find, Forget, Found, Keep, KeptInfo

_LONGEST = 200


@dataclasses.dataclass(frozen=True)
class Name:
    """A name at the daemon, and what it should hold.

    Attributes:
        text: the name.
        key: of its content; None matches any; an empty one matches none.
        packages: whose versions are part of the key.
        ttl: seconds without use after which it is forgotten; None: never.
    """

    text: str
    key: str | None
    packages: tuple[str, ...]
    ttl: float | None


def key_of_function(captured: Capture, context: Context) -> str:
    """The key of the tree that a function returns; `captured` includes its declared inputs."""
    settings = tuple((name, values.encode(value)) for name, value in context)
    return f"function {_digest((captured.key, settings))}"


def key_of_leaves(label: str, leaves: Sequence[Any], specs: Sequence[Spec]) -> str:
    """The key of a tree by its content; empty if some of that is on the daemon."""
    if any(type(leaf) is Array for leaf in leaves):
        return ""
    contents = [array_digest(raw_bytes(value_of(*pair))) for pair in zip(leaves, specs, strict=True)]
    return f"tree {_digest((label, list(specs), contents))}"


def label_of(structure: tree.Structure, specs: Sequence[Spec]) -> str:
    """A tree as text: `{'w': f32[8,8]}`."""
    return shown(structure, map(of_spec, specs))


def find(session: Session, name: Name) -> tuple[list[Array], bytes] | None:
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


def publish(
    session: Session, name: Name, leaves: Sequence[Any], specs: Sequence[Spec], node: bytes, label: str
) -> list[Array]:
    """Have a name hold these leaves instead of what it held; return handles on them.

    Raises:
        ArrayBudgetExceeded: there is no room; the name holds what it held.
    """
    label = label if len(label) <= _LONGEST else f"{label[: _LONGEST - 1]}…"

    def ask() -> list[Array]:
        with session:
            arrays = put(session, leaves, specs)
            handles = cast("tuple[int, ...]", tuple(array.handle_in(session) for array in arrays))  # all are there now
            generation = session.generation
            message = Keep(name.text, name.key or "", name.packages, tuple(specs), node, label, handles, name.ttl)
            try:
                session.ask(Verb.KEEP, message, None)
            except ArrayLost as error:
                if session.generation == generation:
                    raise
                raise DaemonLost("the daemon ended while a tree was on its way there") from error
            return arrays

    return session.retrying(ask, ATTEMPTS)


def forget(session: Session, name: Name) -> bool:
    """Forget a name; return whether it held something."""
    return bool(session.retrying(lambda: session.ask(Verb.FORGET, Forget(name.text), list[KeptInfo]), ATTEMPTS))


def _digest(value: Any) -> str:
    return digest(msgspec.msgpack.encode(value), 20).hex()
