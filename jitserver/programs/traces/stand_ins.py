"""Replacement of attributes of foreign modules for the whole process. The daemon does so in this module only.

Python offers no other way to observe these functions, or to find out on whose thread they are called:

- `ambient_reads.py`: functions of `time`, `os`, `uuid`, `random` and `logging` that read ambient input. Audit hooks
  report files and sockets, but not clocks, environment variables and random bytes.
- `output.py`: the standard streams, and `warnings.showwarning`.

Each stand-in first reports the call, or checks whether the thread's output is withheld, and then behaves as the
original does. The originals are never restored, because packages may have kept references to the stand-ins.
"""

import functools
from collections.abc import Callable
from typing import Any

from jitclient.capture.ambient.inputs import reads


def replace(owner: Any, name: str, stand_in_for: Callable[[Any], Any]) -> None:
    """Replace an attribute of a module or class by `stand_in_for(attribute)`."""
    setattr(owner, name, stand_in_for(getattr(owner, name)))


class StandIn:
    """Stand-in for a function that reports an ambient read, if a trace is observed, before it calls the real function.

    A stand-in equals the real function, so that it is found in sets of functions such as `os.supports_fd`. Like the
    built-in function that it replaces, it does not become a method when a class holds it.
    """

    def __init__(self, real: Any, module: str, report: Callable[..., None]) -> None:
        self._real = real
        self._report = report
        functools.update_wrapper(self, real)
        self.__module__ = module

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if reads.noted is not None:
            self._report(*args)
        return self._real(*args, **kwargs)

    def __repr__(self) -> str:
        return repr(self._real)

    def __eq__(self, other: object) -> bool:
        return other is self or other is self._real

    def __hash__(self) -> int:
        return hash(self._real)

    def __reduce__(self) -> str:
        return str(self._real.__name__)


def reporting_method(method: Callable[..., Any], report: Callable[..., None]) -> Callable[..., Any]:
    """Return a stand-in for a method of a class, which reports an ambient read before it calls the real method."""

    @functools.wraps(method)
    def stand_in(*args: Any, **kwargs: Any) -> Any:
        if reads.noted is not None:
            report(*args)
        return method(*args, **kwargs)

    return stand_in
