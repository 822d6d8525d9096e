"""Record of the programs that are being made, and of the clients that wait for them."""

import contextlib
import dataclasses
import itertools
import time
from collections.abc import Callable, Iterator

from jitclient.wire import labels
from jitclient.wire.introspection import Making
from jitclient.wire.messages import Prepare

Say = Callable[[str], None]


@dataclasses.dataclass
class _Asked:
    key: str
    request: Prepare
    pid: int
    since: float
    phase: str = ""  # only set for the request whose thread does the work; the others wait


class InProgress:
    """The requests for programs that are in progress. Thread-safe."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._asked: dict[int, _Asked] = {}

    @contextlib.contextmanager
    def asked(self, key: str, request: Prepare, pid: int, say: Say) -> Iterator[Say]:
        """Register a request for the duration of the context.

        Yields:
            A `say` function that also records the request's phases.
        """
        number, asked = next(self._numbers), _Asked(key, request, pid, time.monotonic())

        def noted(phase: str) -> None:
            asked.phase = phase
            say(phase)

        self._asked[number] = asked
        try:
            yield noted
        finally:
            del self._asked[number]

    def now(self) -> list[Making]:
        """Return the programs in progress, the oldest first, each with all clients that wait for it."""
        by_key: dict[str, list[_Asked]] = {}
        for asked in list(self._asked.values()):
            by_key.setdefault(asked.key, []).append(asked)
        now = time.monotonic()
        return sorted((_told(asked, now) for asked in by_key.values()), key=lambda making: -making.seconds)


def _told(together: list[_Asked], now: float) -> Making:
    maker = next((asked for asked in together if asked.phase), together[0])
    request = maker.request
    return Making(
        key=maker.key,
        label=labels.of_call(request.name, request.lookup.signature.leaves),
        phase=maker.phase or "loading",
        seconds=now - maker.since,
        pids=(maker.pid, *(asked.pid for asked in together if asked is not maker)),
    )
