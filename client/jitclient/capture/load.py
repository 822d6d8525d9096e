"""The daemon's half: run a capture's program in a private namespace."""

from types import CodeType
from typing import Any

from jitclient.capture.codec.unpickler import from_bytes
from jitclient.capture.objects import Numbering
from jitclient.capture.steps.builder import Builder
from jitclient.capture.steps.format import LOCATED, NAMEABLE, SHARED
from jitclient.capture.steps.sharing import loading
from jitclient.capture.user_code.bytecode import nested
from jitclient.errors import CaptureError, Incompatible


class Loaded(Numbering):
    """A capture made anew: its function, its extras, and every object that was `made` for it, with its step."""

    def __init__(self, builder: Builder, fn: Any, extras: tuple[Any, ...]) -> None:
        self.made: list[tuple[str, Any]] = list(zip(builder.ops, builder.objects, strict=True))
        super().__init__(extras, [obj for op, obj in self.made if op in NAMEABLE])
        self.fn = fn
        self.extras = extras
        self._numbers = {id(obj): number for number, (op, obj) in enumerate(self.made) if op in SHARED}
        self._groups = builder.plan.groups
        located = [obj for op, obj in self.made if op in LOCATED]
        self._places = {
            id(code): (code, number, part)
            for number, owner in enumerate(located)
            for part, code in enumerate(nested(getattr(owner, "__code__", owner)))
        }

    def number_of(self, obj: object) -> int | None:
        """The number of an object of the capture whose identity counts; `Capture.made_at` finds it."""
        return self._numbers.get(id(obj))

    def place_of(self, code: CodeType) -> tuple[int, int] | None:
        """Which piece of the capture's code holds a code object, and its number there; `Capture.code_at` finds it."""
        found = self._places.get(id(code))
        return None if found is None else found[1:]


def load(payload: bytes, locations: bytes = b"") -> Loaded:
    """Make a captured function anew, in a namespace of its own.

    Raises:
        CaptureError: the payload is not one of this format, or what it needs is missing here.
        Incompatible: it refers to more devices than there are.
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
