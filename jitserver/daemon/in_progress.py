"""Record of the programs that are being made, and of the clients that wait for them."""

import contextlib
import dataclasses
import itertools
import time
from collections.abc import Iterator
from typing import Protocol

from jitclient.core import events
from jitclient.wire import labels
from jitclient.wire.introspection import Making
from jitclient.wire.messages import Prepare


class Client(Protocol):
    """Connection of a client that has requested a program."""

    @property
    def pid(self) -> int: ...
    def is_abandoned(self) -> bool: ...
    def report_phase(self, phase: str) -> None: ...


@dataclasses.dataclass
class _Request:
    key: str
    request: Prepare
    client: Client
    since: float
    phase: str = ""  # only set for the request whose thread does the work; the others wait


class InProgress:
    """The requests for programs that are in progress. Thread-safe."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._requests: dict[int, _Request] = {}

    @contextlib.contextmanager
    def recording(self, key: str, request: Prepare, client: Client) -> Iterator[None]:
        """Register a request for the duration of the context, and report its phases to the client."""
        number, pending = next(self._numbers), _Request(key, request, client, time.monotonic())

        def recorded(phase: str) -> None:
            pending.phase = phase
            client.report_phase(phase)

        self._requests[number] = pending
        try:
            with events.log.observed_by(recorded):
                yield
        finally:
            del self._requests[number]

    def now(self) -> list[Making]:
        """Return the programs in progress, the oldest first, each with the clients that still wait for it."""
        by_key: dict[str, list[_Request]] = {}
        for pending in list(self._requests.values()):
            by_key.setdefault(pending.key, []).append(pending)
        now = time.monotonic()
        return sorted((_making_of(pending, now) for pending in by_key.values()), key=lambda making: -making.seconds)


def _making_of(together: list[_Request], now: float) -> Making:
    maker = next((pending for pending in together if pending.phase), together[0])
    request = maker.request
    clients = [maker.client, *(pending.client for pending in together if pending is not maker)]
    return Making(
        key=maker.key,
        label=labels.of_program(request),
        phase=maker.phase or "loading",
        seconds=now - maker.since,
        pids=tuple(client.pid for client in clients if not client.is_abandoned()),
    )
