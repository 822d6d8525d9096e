"""The user's annotations of a profile: a daemon is sent the begin of each with the first call inside, and its end.

Each thread has those that it has begun. Those without a call are not sent, so that a thread that makes no calls never
waits for one that does.
"""

import itertools
import threading
from typing import TYPE_CHECKING, Any

from jitclient.wire.recording import Annotation

if TYPE_CHECKING:
    from jitclient.session.session import Session
    from jitclient.wire.connection import ClientConnection

are_sent = False
"""Whether a daemon records for this process. A plain variable, because each call reads it."""

_MAX_TEXT = 1000
_numbers = itertools.count(1)


class Open:
    """Annotation that has begun and not ended.

    Attributes:
        session: the session that has sent its begin; None before.
        connection: the connection that carried it.
    """

    def __init__(self, name: str, metadata: dict[str, Any]) -> None:
        texts = {key: str(value)[:_MAX_TEXT] for key, value in metadata.items()}
        self.message = Annotation(next(_numbers), name[:_MAX_TEXT], texts)
        self.session: Session | None = None
        self.connection: ClientConnection | None = None


class _OpenHere(threading.local):
    def __init__(self) -> None:
        self.open: list[Open] = []


_here = _OpenHere()


def begin(name: str, metadata: dict[str, Any]) -> Open:
    """Note an annotation that this thread begins."""
    annotation = Open(name, metadata)
    _here.open.append(annotation)
    return annotation


def send(session: "Session") -> None:
    """Send the begins of this thread's annotations, unless the session's connection has carried them."""
    for annotation in _here.open:
        if annotation.connection is None or annotation.connection is not session.connection:
            annotation.session, annotation.connection = session, session.annotate(annotation.message)


def start() -> None:
    """Send annotations with calls from now on."""
    global are_sent
    are_sent = True


def stop() -> None:
    """Send no more of them, and end those of this thread."""
    global are_sent
    are_sent = False
    while _here.open:
        end(_here.open[-1])


def end(annotation: Open) -> None:
    """End an annotation of this thread."""
    if annotation in _here.open:
        _here.open.remove(annotation)
    session = annotation.session
    if session is not None:
        with session.lock:
            if session.connection is annotation.connection:
                session.annotate(Annotation(annotation.message.number))
