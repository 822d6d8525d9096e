"""Pickles between driver and worker.

Functions and classes of modules are pickled by name (`sources.py`), those of `__main__` and those made by functions by
value, with cloudpickle. A class that a worker has from the driver goes back by its number, and is the same class again.

Arguments are pickled when a task is submitted, so that later changes of them do not matter. Plain values, which cannot
change, are not: they travel together with those of other calls. Arrays of a daemon are left out of the pickle, since
their place depends on the worker: see `Snapshot`.
"""

import io
import pickle
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any, NamedTuple

import cloudpickle

PLAIN = frozenset({int, float, complex, bool, str, bytes, type(None)})
"""Types of values that cannot change."""

_internals = cloudpickle.cloudpickle
_NO_FILE = "<dynamic-code>"
_classes_of_worker: "weakref.WeakSet[type]" = weakref.WeakSet()
_arrays = threading.local()


class Snapshot(NamedTuple):
    """Pickle of the arguments of a call.

    Attributes:
        data: the pickle, with a number in place of each array of a daemon.
        arrays: these arrays.
    """

    data: bytes
    arrays: Sequence[Any]

    def placed(self, place: Callable[[Any], Any]) -> "Snapshot":
        """Return the snapshot for a worker, with a pickle of `place(array)` for each array."""
        return self._replace(arrays=[dumps(place(array)) for array in self.arrays])

    def load(self) -> Any:
        """Unpickle the arguments in a worker."""
        _arrays.found = [pickle.loads(array) for array in self.arrays]
        try:
            return pickle.loads(self.data)
        finally:
            del _arrays.found


def is_plain(value: Any) -> bool:
    """Return whether a value and all in it cannot change."""
    kind = type(value)
    return kind in PLAIN or (kind is tuple and all(map(is_plain, value)))


def snapshot(value: Any) -> Snapshot:
    """Pickle the arguments of a call, apart from the arrays of a daemon."""
    arrays: list[Any] = []
    return Snapshot(_dumped(value, lambda pickler: pickler.leave_out(arrays)), arrays)


def dumps(value: Any) -> bytes:
    """Pickle a value of the driver; arrays of a daemon by value."""
    return _dumped(value, lambda pickler: None)


def dumps_in_worker(value: Any) -> bytes:
    """Pickle a value of a worker: the driver's classes by their number."""
    return _dumped(value, lambda pickler: pickler.name_classes())


loads = pickle.loads


def _dumped(value: Any, prepare: "Callable[[_Pickler], None]") -> bytes:
    file = io.BytesIO()
    pickler = _Pickler(file, protocol=pickle.HIGHEST_PROTOCOL)
    prepare(pickler)
    pickler.dump(value)
    return file.getvalue()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    _left_out: list[Any] | None = None
    _names_classes = False

    def leave_out(self, arrays: list[Any]) -> None:
        self._left_out = arrays

    def name_classes(self) -> None:
        self._names_classes = True

    def reducer_override(self, obj: Any) -> Any:
        if self._left_out is not None and is_array(obj):
            self._left_out.append(obj)
            return _array, (len(self._left_out) - 1,)
        if self._names_classes and isinstance(obj, type):
            number = _internals._DYNAMIC_CLASS_TRACKER_BY_CLASS.get(obj)
            if number is None:
                _classes_of_worker.add(obj)
            elif obj not in _classes_of_worker:
                return _class_of_driver, (number,)
        if isinstance(obj, CodeType):
            # With the name of the file, which tracebacks of the worker show.
            kind, fields = _internals._code_reduce(obj)
            return kind, tuple(obj.co_filename if field == _NO_FILE else field for field in fields)
        return super().reducer_override(obj)


def is_array(value: Any) -> bool:
    """Return whether a value is an array of a daemon."""
    module = sys.modules.get("jitclient.arrays.array")
    return module is not None and type(value) is module.Array


def _array(number: int) -> Any:
    return _arrays.found[number]


def _class_of_driver(number: str) -> type:
    found: type | None = _internals._DYNAMIC_CLASS_TRACKER_BY_ID.get(number)
    if found is None:
        raise pickle.UnpicklingError("a result has a class that this program no longer has")
    return found
