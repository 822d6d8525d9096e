"""Session that adds to the time line how long the process waits for the daemon, and for what."""

from collections.abc import Sequence
from typing import Any

from jitclient.core import events
from jitclient.core.events import ProgramRecord
from jitclient.core.settings import Settings
from jitclient.session.session import Session
from jitclient.wire.array_transport import HostArray, nbytes_of
from jitclient.wire.connection import ClientConnection
from jitclient.wire.messages import Attached, Found, Prepared, Run, Spec, Verb, Welcome

_KINDS = {
    Verb.LOOKUP: "look-up",
    Verb.UPLOAD: "upload",
    Verb.PREPARE: "wait",
    Verb.SETTLE: "settle",
    Verb.EXPLAIN: "explain",
    Verb.FIND: "named arrays",
    Verb.KEEP: "named arrays",
    Verb.FORGET: "named arrays",
}
"""Requests that have spans, and what kind."""

_PHASES = {
    "waiting": "wait for another",
    "unpacking": "unpack",
    "tracing": "trace",
    "lowering": "lower",
    "compiling": "compile",
    "looking up": "look-up",
    "reading": "read",
    "loading": "load",
}
"""Phases of the daemon, as kinds of spans."""


class TimedSession(Session):
    """Session for a run whose report is written to a file. Other runs have a `Session`, and pay for nothing here."""

    def __init__(self, chosen: Settings) -> None:
        super().__init__(chosen)
        self._records: dict[int, ProgramRecord] = {}

    def _enter(self, welcome: Welcome) -> None:
        super()._enter(welcome)
        log = events.log
        log.daemon = welcome.pid

    def connect(self) -> ClientConnection:
        """Connect as `Session` does."""
        if self.connection is not None:
            return self.connection
        with events.log.span("connect"):
            return super().connect()

    def ask_once(self, verb: Verb, *rest: Any, **named: Any) -> Any:
        """Send a verb as `Session` does."""
        if verb not in _KINDS:
            return super().ask_once(verb, *rest, **named)
        with events.log.span(_KINDS[verb]):
            start = events.log.now()
            found = super().ask_once(verb, *rest, **named)
            prepared = found.prepared if isinstance(found, Found) else found
            if isinstance(prepared, Prepared):
                self._add_phases(prepared, start)
        return found

    def _add_phases(self, prepared: Prepared, start: int) -> None:
        """Add what the daemon did meanwhile. It began when the request was sent, but for the time on the way."""
        log = events.log
        record, end = log.program_here(), log.now()
        if record is not None:
            self._records[prepared.executable] = record
        for phase in prepared.phases:
            kind = _PHASES.get(phase.name, phase.name)
            kind = "fetch from the lab" if kind == "read" and prepared.level == "share" else kind
            begun, ended = (start + round(seconds * 1e9) for seconds in (phase.start, phase.start + phase.seconds))
            log.add(kind, min(begun, end), min(ended, end), "" if record is None else record.label, in_daemon=True)

    def run(
        self, message: Run, attachments: Sequence[HostArray] = (), specs: Sequence[Spec] = (), *rest: Any, **named: Any
    ) -> Any:
        """Send a Run as `Session` does."""
        # Queued calls are added to the message.
        calls, puts, fetches = list(message.calls), message.puts, bool(message.fetch)
        sent = _nbytes([argument for call in calls for argument in call.arguments], attachments)
        sent += _nbytes([put.value for put in puts], ())
        received, start = 0, events.log.now()
        try:
            reply, values = super().run(message, attachments, specs, *rest, **named)
            inline = reply.values if not specs else ()
            received = sum(map(nbytes_of, specs)) + sum(len(value) for value in inline if type(value) is bytes)
            return reply, values
        finally:
            kind = "call" if calls else "send" if puts else "fetch" if fetches else "finish"
            record = self._records.get(calls[0].executable) if calls else None
            events.log.add_call(kind, record, start, sent, received)

    def call_later(
        self, executable: int, arguments: Any, first: int, attachments: Any, program_generation: int
    ) -> None:
        """Queue a call as `Session` does."""
        record, start = self._records.get(executable), events.log.now()
        super().call_later(executable, arguments, first, attachments, program_generation)
        events.log.add_call("call", record, start, _nbytes(arguments, attachments))
        if record is not None:
            record.queued += 1


def _nbytes(values: Sequence[int | bytes | Attached], attachments: Sequence[HostArray]) -> int:
    inline = sum(len(value) for value in values if type(value) is bytes)
    return inline + sum(int(attachment.nbytes) for attachment in attachments)
