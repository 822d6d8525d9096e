"""What every tier of the cache is: a mapping from call keys to programs, within a bound of bytes."""

import abc
from collections.abc import Iterable
from typing import Generic, TypeVar

from jitclient.wire.messages import EntryInfo
from jitserver.cache.entry import Entry, Stored

Item = TypeVar("Item", Entry, Stored)


class Tier(abc.ABC, Generic[Item]):
    """Programs by call key. Safe to use from threads."""

    most_bytes: int
    """The bound: beyond it, programs leave that are worth least."""

    @property
    @abc.abstractmethod
    def nbytes(self) -> int:
        """The bytes that it takes."""

    @abc.abstractmethod
    def get(self, key: str) -> Item | None:
        """The program of that key."""

    @abc.abstractmethod
    def put(self, item: Item) -> Item:
        """Adds a program, or replaces it, and makes room for it; returns it as the tier has it."""

    @abc.abstractmethod
    def remove(self, keys: Iterable[str]) -> None:
        """Forgets programs, if they are there."""

    @abc.abstractmethod
    def pin(self, keys: Iterable[str], pinned: bool) -> None:
        """Has programs stay, or lets them go again."""

    @abc.abstractmethod
    def infos(self, prefix: str = "") -> list[EntryInfo]:
        """The programs whose key starts with `prefix`, or whose function has that name; all where it is empty."""

    @abc.abstractmethod
    def of_base(self, base: str) -> list[EntryInfo]:
        """The programs of a base key, which differ in their manifests."""

    @abc.abstractmethod
    def named(self, name: str) -> list[Item]:
        """Programs of that name, the ones used last first: some of them, where there are many."""
