"""Conversions of an array of the daemon to values of numpy and Python, which fetch it."""

import sys
import threading
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np

from jitclient.arrays.dispatch import Remote, here
from jitclient.core.tracebacks import api_boundaries, hide_machinery
from jitclient.wire.array_transport import KEY_PREFIX, HostArray, is_key
from jitclient.wire.messages import Spec


class _Raised(threading.local):
    error: BaseException | None = None
    """Exception that `__buffer__` has raised; if numpy called it, the `__array__` that follows raises it, too."""
    by: object = None
    """The array, and the instruction of the caller."""


_raised = _Raised()


@api_boundaries("__array__", "__buffer__")
class Conversions(Remote):
    """Conversions of `Array` to values of numpy and Python."""

    __slots__ = ()

    if TYPE_CHECKING:
        spec: Spec
        deleted: bool
        _value: HostArray | None

        def _fetched(self) -> HostArray: ...

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> HostArray:  # type: ignore[override]
        try:
            if _raised.error is not None:
                error, _raised.error = _raised.error, None
                if _raised.by == _call_of(self, sys._getframe(1)):
                    raise error
            value = self._value
            if value is None or self.deleted:
                value = self._fetched()
            if self.spec.dtype.startswith(KEY_PREFIX):
                raise TypeError(
                    "JAX array with PRNGKey dtype cannot be converted to a NumPy array. "
                    "Use jax.random.key_data(arr) if you wish to extract the underlying integer array."
                )
            if copy:
                return np.array(value, dtype=dtype)
            return value if dtype is None else np.asarray(value, dtype=dtype)
        except BaseException as raised:
            hide_machinery(raised)
            raise

    def tobytes(self, order: Any = "C") -> bytes:
        """Return the bytes of the elements."""
        return self._on_host().tobytes(order)  # type: ignore[no-any-return]

    def __bytes__(self) -> bytes:
        if is_key(self.spec):
            return bytes(here(self))
        # bytes() prefers __index__ to the buffer.
        is_index = not self.spec.shape and self.spec.dtype.startswith(("int", "uint"))
        return bytes(int(self)) if is_index else self.tobytes()

    # Where Python has buffers of classes (PEP 688), `np.asarray` calls this method first. It ignores any exception, an
    # interrupt as well, and then calls `__array__`.
    def __buffer__(self, flags: int) -> memoryview:
        _raised.error = None
        try:
            value = self._value
            if value is None or self.deleted or self.spec.dtype.startswith(KEY_PREFIX):
                try:
                    value = self.__array__()
                except BaseException as error:
                    _raised.error, _raised.by = error, _call_of(self, sys._getframe(1))
                    raise
            try:
                return value.data
            except ValueError as error:
                # Buffers have no type for bfloat16 and the like.
                raise BufferError(str(error)) from None
        except BaseException as raised:
            hide_machinery(raised)
            raise

    def item(self, *position: int) -> Any:
        """Return one element as a Python scalar; without a position, the only one."""
        return self._on_host().item(*position)

    def tolist(self) -> Any:
        """Return the elements as nested lists of Python scalars."""
        return self._on_host().tolist()

    def __float__(self) -> float:
        return float(self._scalar())

    def __int__(self) -> int:
        return int(self._scalar())

    def __complex__(self) -> complex:
        return complex(self._scalar())

    def __bool__(self) -> bool:
        if is_key(self.spec):
            return bool(here(self))
        if self.size != 1:
            many = "array with more than one element is ambiguous. Use a.any() or a.all()"
            none = "empty array is ambiguous. Use `array.size > 0` to check that an array is not empty."
            raise ValueError(f"The truth value of an {many if self.size else none}")
        return bool(np.asarray(self))

    def __index__(self) -> int:
        if self.spec.shape or not self.spec.dtype.startswith(("int", "uint")):
            raise TypeError("Only integer scalar arrays can be converted to a scalar index.")
        return int(np.asarray(self))

    def __hex__(self) -> str:
        return hex(self)

    def __oct__(self) -> str:
        return oct(self)

    def __len__(self) -> int:
        if not self.spec.shape:
            raise TypeError("len() of unsized object")
        return self.spec.shape[0]

    def __format__(self, spec: str) -> str:
        value = self._on_host()
        return format(value if self.spec.shape or is_key(self.spec) else value[()], spec)

    def __str__(self) -> str:
        return repr(self) if is_key(self.spec) else str(np.asarray(self))

    def __repr__(self) -> str:
        kind = f"dtype={self.spec.dtype}" + (", weak_type=True" if self.spec.weak_type else "")
        if is_key(self.spec):
            return f"Array({self.spec.shape}, {kind}) overlaying:\n{self._fetched()}"
        return _shown(self._fetched(), self.spec.shape, kind)

    def _on_host(self) -> Any:
        """Return the value as a numpy array; typed keys as a jax array, because only jax has their operations."""
        return here(self) if is_key(self.spec) else np.asarray(self)

    def _scalar(self) -> Any:
        if self.spec.shape:
            raise TypeError(f"Only scalar arrays can be converted to Python scalars; got arr.ndim={self.ndim}")
        return np.asarray(self)[()]


def _call_of(array: Any, caller: FrameType) -> object:
    """Return what the calls of a method have in common if one instruction of a program makes them all."""
    return id(array), id(caller), caller.f_lasti


def _shown(value: HostArray, shape: tuple[int, ...], kind: str) -> str:
    """Return the text of `repr`, in JAX's layout."""
    width = np.get_printoptions()["linewidth"]
    elements = np.array2string(value, prefix="Array(", suffix=",", separator=", ", max_line_width=width)
    if not value.size:
        elements = f"[], shape={shape}"
    last_line = len(elements) - elements.rfind("\n") + 1
    gap = " " * len("Array(") if last_line + len(kind) + 2 > width else " "
    return f"Array({elements},{gap}{kind})"
