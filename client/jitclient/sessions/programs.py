"""Looking up a program on the daemon, and having it compiled where it is unknown."""

import functools
from collections.abc import Callable

from jitclient.codec import values
from jitclient.errors import CaptureError
from jitclient.sessions.session import Session
from jitclient.wire.messages import MOST_CAPTURE_BYTES, UPLOAD_BYTES, Lookup, Prepare, Prepared, Upload, Verb


def prepare(
    session: Session,
    lookup: Lookup,
    make: Callable[[], tuple[Prepare, bytes]],
    deref: values.Deref,
    say: Callable[[str], None],
) -> tuple[Prepared, int]:
    """Look a program up on the daemon; if it is unknown, have it compiled from what `make` returns.

    Returns:
        The program, and the program generation in which its number is valid.
    """
    make = functools.cache(make)

    def attempt() -> Prepared:
        session.connect().on_busy = say
        session.send_report()
        prepared: Prepared | None = session.ask_once(Verb.LOOKUP, lookup, Prepared | None, deref)
        if prepared is None:
            request, payload = make()
            _upload(session, request.traced.key if request.traced else lookup.capture_key, payload)
            prepared = session.ask_once(Verb.PREPARE, request, Prepared, deref)
            assert prepared is not None
        return prepared

    with session.lock:
        return session.retrying(attempt), session.program_generation


def _upload(session: Session, key: str, payload: bytes) -> None:
    if len(payload) > MOST_CAPTURE_BYTES:
        raise CaptureError(
            f"the function and what it captures take {len(payload):,} bytes, more than a daemon takes "
            f"({MOST_CAPTURE_BYTES:,}): pass large arrays as arguments"
        )
    for start in range(0, len(payload), UPLOAD_BYTES):
        session.ask_once(Verb.UPLOAD, Upload(key, start, payload[start : start + UPLOAD_BYTES]), None)
