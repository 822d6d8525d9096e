"""A process that saves programs and dies at a named point of it: `python store_worker.py FOLDER POINT NUMBER`.

POINT is one of those below; the process ends there the NUMBER-th time that it is reached, half of a write done. Without
a point it prints how often each was reached.
"""

import collections
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jitclient.wire.introspection import EntryInfo
from jitserver.store import catalog, checked_files
from jitserver.store.disk import Store
from jitserver.store.entry import KeyComponents, Stored

reached: collections.Counter[str] = collections.Counter()
folder, end, number = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])


def point(name: str) -> None:
    reached[name] += 1
    if name == end and reached[name] == number:
        os._exit(9)


def around(holder: Any, name: str) -> None:
    act: Callable[..., Any] = getattr(holder, name)

    def wrapped(*arguments: Any) -> Any:
        point(f"before {name}")
        done = act(*arguments)
        point(f"after {name}")
        return done

    setattr(holder, name, wrapped)


def torn(data: bytes) -> list[bytes]:
    return [data[: len(data) // 2], data[len(data) // 2 :]]


class HalfWrites:
    """Writes in two halves, with a point between them."""

    def __init__(self, write: Callable[..., None]) -> None:
        self._write = write

    def __call__(self, path: Path, chunks: Any) -> None:
        def halves() -> Any:
            for chunk in chunks:
                first, second = torn(bytes(chunk))
                yield first
                point("in the middle of write")
                yield second

        self._write(path, halves())


around(checked_files, "sync")
around(checked_files, "rename")
checked_files.write = HalfWrites(checked_files.write)  # type: ignore[assignment]
around(catalog, "commit")


def program(key: str) -> Stored:
    info = EntryInfo(key, "fk", "f", "f.py:1", "f()", "f()", "", {}, {"compile": 1.0}, 0.0, 0, 1.0, 1.0, 0)
    return Stored(info, KeyComponents({"capture": key.encode()}), key.encode() * 100, b"request")


store = Store(folder, 1 << 30)
for key in ("first", "second", "first"):  # the last one replaces
    store.put(program(key), f"executable of {key}".encode() * 1000, b"capture of both" * 1000)
store.remove(["second"])
store.close()
print(json.dumps(reached))
