"""Objects for commands, which may wait longer than a call, and not for ever: a job's script may begin with `pull`."""

from collections.abc import Callable, Iterator
from typing import TypeVar

from jitserver.store.deadline import Deadlines
from jitserver.store.share.objects import Object, Objects

SECONDS = 60.0
"""Deadline of an operation, without the time for its bytes."""

_BYTES_PER_SECOND = 1 << 20
"""Speed of the slowest storage that is used."""

Result = TypeVar("Result")


class PatientObjects(Objects):
    """Objects whose methods raise StorageHangs, an OSError, if the storage does not answer for a long time."""

    def __init__(self, url: str) -> None:
        self._deadlines = Deadlines()
        super().__init__(url)

    def get(self, name: str, max_bytes: int) -> bytes | None:
        return self._within_deadline(lambda: super(PatientObjects, self).get(name, max_bytes), max_bytes)

    def has(self, name: str) -> bool:
        return self._within_deadline(lambda: super(PatientObjects, self).has(name))

    def put(self, name: str, data: bytes) -> None:
        self._within_deadline(lambda: super(PatientObjects, self).put(name, data), len(data))

    def create(self, name: str, data: bytes) -> bool:
        return self._within_deadline(lambda: super(PatientObjects, self).create(name, data), len(data))

    def remove(self, name: str) -> None:
        self._within_deadline(lambda: super(PatientObjects, self).remove(name))

    def all(self, folder: str) -> Iterator[Object]:
        yield from self._within_deadline(lambda: list(super(PatientObjects, self).all(folder)))

    def unfinished(self, folder: str) -> Iterator[Object]:
        yield from self._within_deadline(lambda: list(super(PatientObjects, self).unfinished(folder)))

    def _within_deadline(self, act: Callable[[], Result], nbytes: int = 0) -> Result:
        return self._deadlines.run(act, SECONDS + nbytes / _BYTES_PER_SECOND)
