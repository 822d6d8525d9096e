"""Loader of captures (the daemon's half): runs a capture's program in a private namespace."""

from types import CodeType
from typing import Any

from jitclient.capture.codec.unpickler import from_bytes
from jitclient.capture.objects import ObjectIndex
from jitclient.capture.steps.builder import Builder
from jitclient.capture.steps.format import IDENTITY_OPS, INDEXED_OPS, LOCATED_OPS
from jitclient.capture.steps.sharing import loading
from jitclient.capture.user_code.bytecode import nested
from jitclient.errors import CaptureError, Incompatible


class Loaded(ObjectIndex):
    """Loaded capture: its function, its extras, and every object made for it.

    Attributes:
        made: pairs of the step's name and the object that it made, in the order of the program.
        fn: the function.
        extras: the values captured with the function.
    """

    def __init__(self, builder: Builder, fn: Any, extras: tuple[Any, ...]) -> None:
        self.made: list[tuple[str, Any]] = list(zip(builder.ops, builder.objects, strict=True))
        super().__init__(extras, [obj for op, obj in self.made if op in INDEXED_OPS])
        self.fn = fn
        self.extras = extras
        self._numbers = {id(obj): number for number, (op, obj) in enumerate(self.made) if op in IDENTITY_OPS}
        self._groups = builder.plan.groups
        located = [obj for op, obj in self.made if op in LOCATED_OPS]
        self._places = {
            id(code): (code, number, part)
            for number, owner in enumerate(located)
            for part, code in enumerate(nested(getattr(owner, "__code__", owner)))
        }

    def number_of(self, obj: object) -> int | None:
        """Return the number of a captured object whose identity matters, for `Capture.made_at`; None if it has none."""
        return self._numbers.get(id(obj))

    def place_of(self, code: CodeType) -> tuple[int, int] | None:
        """Return the place of a captured code object, for `Capture.code_at`; None if the capture does not hold it.

        The place is the number of the function or module that owns the code, and the number of the code object in it.
        """
        found = self._places.get(id(code))
        return None if found is None else found[1:]


def load(payload: bytes, locations: bytes = b"") -> Loaded:
    """Rebuild a captured function in a private namespace.

    Args:
        payload: bytes of the capture.
        locations: file names, lines and local names of its code; empty to leave them out.

    Raises:
        CaptureError: the payload has another format, or an object that it needs is missing here.
        Incompatible: the capture refers to more devices than this process has.
    """
    try:
        codes, _ = from_bytes(locations) if locations else ((), ())
        with loading:
            builder = Builder(payload, list(codes))
            fn, extras = builder.run()
            builder.plan.publish(builder.objects)
        return Loaded(builder, fn, tuple(extras))
    except (CaptureError, Incompatible):
        raise
    except Exception as error:
        raise CaptureError(f"the capture cannot be loaded: {type(error).__name__}: {error}") from error
