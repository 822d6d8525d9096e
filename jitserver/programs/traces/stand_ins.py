"""The one place where the daemon replaces attributes of modules that are not its own, for the whole process.

Python has no other way to learn of what these do, or to tell whose thread does it:

- `readers.py`: functions of `time`, `os`, `uuid`, `random` and `logging` that read the world. Audit hooks tell of files
  and sockets, but not of clocks, variables and random bytes.
- `output.py`: the standard streams, and `warnings.showwarning`.

Each does what it did before, and tells or asks first. Nothing is put back: packages may have kept what they found.
"""

import functools
from collections.abc import Callable
from typing import Any

from jitclient.capture.ambient.inputs import reads


def put(owner: Any, name: str, stand_in_for: Callable[[Any], Any]) -> None:
    """Replaces an attribute of a module or class by what `stand_in_for` makes of it."""
    setattr(owner, name, stand_in_for(getattr(owner, name)))


class StandIn:
    """A function that tells of a read, where somebody wants to know, before it does what the real one does.

    It passes for the real one in sets of functions (`os.supports_fd`), and is no method where a class holds it: neither
    are the builtin functions that it stands for.
    """

    def __init__(self, real: Any, module: str, tell: Callable[..., None]) -> None:
        self._real = real
        self._tell = tell
        functools.update_wrapper(self, real)
        self.__module__ = module

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if reads.noted is not None:
            self._tell(*args)
        return self._real(*args, **kwargs)

    def __repr__(self) -> str:
        return repr(self._real)

    def __eq__(self, other: object) -> bool:
        return other is self or other is self._real

    def __hash__(self) -> int:
        return hash(self._real)

    def __reduce__(self) -> str:
        return str(self._real.__name__)


def telling(method: Callable[..., Any], tell: Callable[..., None]) -> Callable[..., Any]:
    """Likewise for a method of a class."""

    @functools.wraps(method)
    def stand_in(*args: Any, **kwargs: Any) -> Any:
        if reads.noted is not None:
            tell(*args)
        return method(*args, **kwargs)

    return stand_in
