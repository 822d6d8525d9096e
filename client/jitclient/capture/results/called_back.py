"""Functions that a daemon calls in the client: of whatever is installed, they use what the capture mentions, and what
libraries that the program has loaded define inside of their functions.
"""

import pickle
import sys
from typing import Any

from jitclient.capture.dump import Capture
from jitclient.capture.results.places import Placed
from jitclient.capture.results.reader import Remade
from jitclient.errors import CaptureError

_PARTS_OF_JAX = frozenset(
    {
        ("builtins", "dict"),
        ("builtins", "list"),
        ("builtins", "tuple"),
        ("jax", "ShapeDtypeStruct"),
        ("jax._src.callback", "_FlatCallback"),
        ("jax._src.checkify", "Error"),
        ("jax._src.checkify", "ErrorEffect"),
        ("jax._src.checkify", "FailedCheckError"),
        ("jax._src.checkify", "python_err"),
        ("jax._src.core", "MemorySpace"),
        ("jax._src.core", "ShapedArray"),
        ("jax._src.debugging", "_format_print_callback"),
        ("collections", "OrderedDict"),
        ("collections", "defaultdict"),
        ("logging", "LogRecord"),
        ("types", "NoneType"),
    }
)
"""What JAX's own callbacks hold, by names: nothing is imported."""

_HOMES_IN_JAX = frozenset({"jax._src.callback", "jax._src.checkify", "jax._src.debugging"})
_NO_HOMES = frozenset({"jax", "jaxlib", "numpy", "cloudpickle", "jitclient", "jitserver", *sys.stdlib_module_names})
"""Packages that make no callbacks. Others that the program has loaded may, for the functions that it calls."""


class CalledBack(Remade):
    """The functions of a program's slots, by their numbers.

    A daemon chooses what they are called with, so it must not choose what they are: CaptureError if the function that
    was captured does not mention what one uses.
    """

    def __init__(self, capture: Capture, made: bytes) -> None:
        super().__init__(capture, made)

    def _named(self, module: str, name: str) -> Any:
        found = super()._named(module, name)
        is_mentioned = any(_pickled(part) in self._capture.payload for part in (name, name.rpartition(".")[2]))
        is_node = isinstance(found, type) and module.partition(".")[0] not in _NO_HOMES  # of a library's trees
        if callable(found) and not (is_mentioned or is_node or (module, name) in _PARTS_OF_JAX):
            raise CaptureError(f"a callback uses {module}.{name}, which the function does not mention")
        return found

    def _place(self, module: str | None, owner: int, part: int, qualname: str) -> Placed:
        if module is not None:
            package = module.partition(".")[0]
            is_known = package not in _NO_HOMES or module in _HOMES_IN_JAX
            if not is_known or "<locals>" not in qualname:
                raise CaptureError(f"a callback has code of {module}, where no callbacks are made")
        return super()._place(module, owner, part, qualname)


def _pickled(name: str) -> bytes:
    """A name as captures have it, and not as a part of another, such as `call` in `pure_callback`."""
    data = name.encode()[:255]
    return pickle.SHORT_BINUNICODE + bytes((len(data),)) + data
