"""Reader of the objects that a trace made on the daemon (the client's half).

The bytes are read as data, which calls nothing. They can name any installed object as a value, but only functions of
`making.py` are called, and steps complete only objects made by the same bytes.
"""

import pickle
import sys
from typing import Any

from jitclient.capture.codec import values
from jitclient.capture.codec.plain import Reduced, Reference
from jitclient.capture.dump import Capture
from jitclient.capture.results import making, places
from jitclient.capture.results.places import Placed
from jitclient.capture.steps.format import COMPLETION_PREFIX
from jitclient.errors import CaptureError, ProtocolError


class RebuiltObjects:
    """Capture, together with the objects that a trace of it made, both by number.

    Raises:
        CaptureError: this process cannot make one of the objects.
    """

    def __init__(self, capture: Capture, made: bytes) -> None:
        self._capture = capture
        self._objects: list[Any] = []
        self._made: tuple[Any, ...] = ()
        try:
            if made:
                steps, roots = values.read(made)
                for step in steps:
                    self._run_step(step)
                self._made = self._value(roots)
        except CaptureError:
            raise
        except Exception as error:
            # The bytes may be malformed in any way.
            raise CaptureError(
                f"an object made by the trace cannot be rebuilt in this process: {type(error).__name__}: {error}"
            ) from error

    def object_at(self, index: int) -> Any:
        """Return the object with this number (negative: made by the trace); raise IndexError if there is none."""
        return self._made[-1 - index] if index < 0 else self._capture.object_at(index)

    def _run_step(self, step: Reduced) -> None:
        name, args = step.maker, step.args
        if name.startswith(COMPLETION_PREFIX):
            number, *rest = args
            if type(number) is not int or number < 0:
                raise ProtocolError("malformed results: they complete an object that they did not make")
            making.COMPLETERS[name.removeprefix(COMPLETION_PREFIX)](self._objects[number], *map(self._value, rest))
            return
        if name == "function" and not all(map(_is_cell, args[2])):
            raise ProtocolError("malformed results: they make a function with cells that they did not make")
        self._objects.append(making.MAKERS[name](*map(self._value, args)))

    def _value(self, data: values.Data) -> Any:
        kind = type(data)
        if kind is Reference:
            return self._objects[data]
        if kind is tuple:
            return tuple([self._value(part) for part in data])
        if kind is Reduced:
            # Not an attribute: the cycle would keep the function, and its trace, until a collection of garbage.
            own = {"held": self._capture.made_at, "named": self._named, "place": self._place}
            find: Any = own.get(data.maker) or making.FINDERS[data.maker]
            return find(*map(self._value, data.args))
        if kind in values.SELF_WRITTEN:
            return data
        raise ProtocolError(f"malformed value: {data!r:.80}")

    def _named(self, module: str, name: str) -> Any:
        return values.resolve(module, name)

    def _place(self, module: str | None, owner: int, part: int, qualname: str) -> places.Placed:
        if module is not None:
            return places.code_at(module, part, qualname)
        return places.Placed(*self._capture.code_at(owner, part))


def _is_cell(data: values.Data) -> bool:
    return type(data) is Reference or (type(data) is Reduced and data.maker == "held")


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
"""Objects that JAX's own callbacks hold, by name; the names import nothing."""

_HOMES_IN_JAX = frozenset({"jax._src.callback", "jax._src.checkify", "jax._src.debugging"})
_NO_HOMES = frozenset({"jax", "jaxlib", "numpy", "cloudpickle", "jitclient", "jitserver", *sys.stdlib_module_names})
"""Packages that make no callbacks.

Other packages that the program has loaded may make callbacks of the functions that they call.
"""


class CallbackFunctions(RebuiltObjects):
    """Functions of a program's callback slots, by number.

    A daemon chooses the arguments of these functions, so it must not choose the functions.

    Raises:
        CaptureError: a function uses an object that the captured function does not mention.
    """

    def _named(self, module: str, name: str) -> Any:
        found = super()._named(module, name)
        is_mentioned = any(_pickled(part) in self._capture.payload for part in (name, name.rpartition(".")[2]))
        # Classes of libraries may be nodes of trees.
        is_node = isinstance(found, type) and module.partition(".")[0] not in _NO_HOMES
        if callable(found) and not (is_mentioned or is_node or (module, name) in _PARTS_OF_JAX):
            raise CaptureError(f"a callback uses {module}.{name}, which the function does not mention")
        return found

    def _place(self, module: str | None, owner: int, part: int, qualname: str) -> Placed:
        if module is not None:
            package = module.partition(".")[0]
            is_known = package not in _NO_HOMES or module in _HOMES_IN_JAX
            if not is_known or "<locals>" not in qualname:
                raise CaptureError(f"a callback has code of {module}, which makes no callbacks")
        return super()._place(module, owner, part, qualname)


def _pickled(name: str) -> bytes:
    """Return the bytes of a name in a capture.

    The length prefix prevents a match inside a longer name, such as `call` in `pure_callback`.
    """
    data = name.encode()[:255]
    return pickle.SHORT_BINUNICODE + bytes((len(data),)) + data
