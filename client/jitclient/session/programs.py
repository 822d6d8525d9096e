"""Requests for programs: look-up on the daemon, and compilation there."""

from collections.abc import Callable, Sequence

import msgspec

from jitclient.capture.codec import values
from jitclient.core.notices import print_notice
from jitclient.errors import CaptureError
from jitclient.session.retry import with_retries
from jitclient.session.session import Session
from jitclient.wire import labels
from jitclient.wire.messages import (
    MAX_CAPTURE_BYTES,
    UPLOAD_BYTES,
    Found,
    Lookup,
    Manifest,
    Prepare,
    Prepared,
    Upload,
    Verb,
)

_MAX_LAST_BYTES = 1 << 20
"""Maximum size of a part that the request itself brings; the frame has other fields, too."""


def look_up(
    session: Session,
    lookup: Lookup,
    manifests_of: Callable[[Sequence[tuple[str, ...]]], tuple[Manifest, ...]],
    deref: values.Deref,
) -> tuple[Found, int]:
    """Look up a program on the daemon.

    `manifests_of` returns the state of this process for lists of names.

    Returns:
        The answer, and the program generation in which the program's number is valid.
    """

    def attempt() -> Found:
        # A report that fails is lost, so reach the daemon first.
        session.connect()
        session.send_report()
        found: Found = session.ask_once(Verb.LOOKUP, lookup, Found, deref)
        if found.names:
            known = msgspec.structs.replace(lookup, manifests=manifests_of(found.names))
            found = session.ask_once(Verb.LOOKUP, known, Found, deref)
        return found

    with session.lock:
        return with_retries(session, attempt), session.program_generation


def make(
    session: Session,
    request: Prepare,
    payload: bytes,
    deref: values.Deref,
    meanwhile: Callable[[], None] | None = None,
) -> tuple[Prepared, int]:
    """Make the daemon compile a program from a payload.

    `meanwhile` is called while the daemon works. If another thread has released the session to this one, `meanwhile` is
    called before: otherwise the other thread would have to wait for it. `meanwhile` may use the session.

    Returns:
        The program, and the program generation in which its number is valid.

    Raises:
        CaptureError: the payload is too large.
    """
    if len(payload) > MAX_CAPTURE_BYTES:
        raise CaptureError(
            f"the function and the values that it captures have {len(payload):,} bytes "
            f"(maximum: {MAX_CAPTURE_BYTES:,}). Pass large arrays as arguments."
        )
    key = request.traced.key if request.traced else request.lookup.capture_key

    def attempt() -> Prepared:
        rest = len(payload) % UPLOAD_BYTES
        end = len(payload) - rest if rest <= _MAX_LAST_BYTES else len(payload)
        for start in range(0, end, UPLOAD_BYTES):
            session.ask_once(Verb.UPLOAD, Upload(key, start, payload[start : min(start + UPLOAD_BYTES, end)]), None)
        last = Upload(key, end, payload[end:]) if end < len(payload) else None
        message = msgspec.structs.replace(request, last=last)
        prepared: Prepared = session.ask_once(
            Verb.PREPARE, message, Prepared, deref, meanwhile=meanwhile, on_interrupt=tell_what_continues
        )
        return prepared

    def tell_what_continues() -> None:
        label = labels.of_program(request)
        print_notice(f"the daemon continues to compile {label} for later calls; `jitserver status --calls` lists it")

    with session.lock:
        if meanwhile is None or not session.is_yielded:
            return with_retries(session, attempt), session.program_generation
    meanwhile()
    meanwhile = None
    with session.lock:
        return with_retries(session, attempt), session.program_generation
