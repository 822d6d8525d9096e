"""The client's half: from a function to its capture."""

import io
import pickle
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

from jitclient.codec.ambient.patches import refuse_patches
from jitclient.codec.graph.failures import raise_needed
from jitclient.codec.graph.holders import Holders
from jitclient.codec.graph.nodes import Node, Value
from jitclient.codec.graph.numbering import Numbering
from jitclient.codec.graph.schedule import Schedule, Step, order_sets
from jitclient.codec.graph.walker import Walker
from jitclient.codec.pickler import Pickler
from jitclient.codec.reducers import containers, functions, opaque, wrappers  # noqa: F401  (they register describers)
from jitclient.codec.reducers.others import describe_other
from jitclient.codec.sets.order import SetOrder, set_order
from jitclient.codec.steps.format import COMPLETES, NAMEABLE, SHARED, Head
from jitclient.codec.unchanged.tracers import holds_tracer
from jitclient.codec.unchanged.watch import Watch
from jitclient.codec.user_code.code import canonical_code
from jitclient.codec.words import Reduced
from jitclient.digests import digest
from jitclient.errors import AmbientInput, CaptureError

_OPTIONS = {
    "docs": frozenset({"__doc__", "getdoc"}),
    "annotations": frozenset({"__annotations__", "get_type_hints", "get_annotations", "signature"}),
    "qualnames": frozenset({"__qualname__"}),
}
"""What is captured only if some code in reach uses one of these words."""


class Capture:
    """A function as canonical bytes, with all the user code and values that it depends on.

    Attributes:
        payload: what is digested, and what is loaded.
        key: the digest of the payload, in hex.
        locations: file names, lines and local names, for tracebacks; no part of the key.
        packages: the installed packages that the capture refers to, by import name, sorted.
        set_order: how the function depends on the order of sets, which is no part of the key; None if it does not.
        holders: what can keep a value of a trace.
        has_opaque: whether it holds what only a trace in some process knows, so that no daemon can make it.
        ambient: what the function reads from outside Python's objects, where that was allowed; None if nothing.
    """

    def __init__(
        self,
        payload: bytes,
        locations: bytes,
        packages: tuple[str, ...],
        watch: Watch,
        numbering: Numbering,
        set_order: SetOrder | None,
        holders: Holders,
        located: list[Any],
        shared: dict[int | None, Any],
        ambient: AmbientInput | None,
        has_opaque: bool,
    ) -> None:
        self.payload = payload
        self.key = digest(payload).hex()
        self.locations = locations
        self.packages = packages
        self.unchanged: Callable[[], bool] = watch.unchanged
        """Whether nothing that the capture went through has been rebound since."""
        self.watch = watch
        self.set_order = set_order
        self.holders = holders
        self._numbering = numbering
        self._located = located
        self._shared = shared
        self.ambient = ambient
        self.has_opaque = has_opaque

    def is_current(self) -> bool:
        """Whether a new trace of the function would be one of this capture."""
        return self.unchanged() and not self.watch.met_tracer and not self.holders.any_attribute(holds_tracer)

    def index_of(self, obj: object) -> int | None:
        """The index of a captured object that both sides can name, or None."""
        return self._numbering.index_of(obj)

    def object_at(self, index: int) -> Any:
        """The object with this index; IndexError if there is none."""
        return self._numbering.object_at(index)

    def made_at(self, number: int) -> Any:
        """A captured object by the number that a load gives it; LookupError if it has no identity that counts."""
        return self._shared[number]

    def code_at(self, owner: int, part: int) -> tuple[CodeType, dict[str, Any]]:
        """A code object by its place, and the names that it reads; LookupError if there is none."""
        func = self._located[owner]
        if min(owner, part) < 0 or not isinstance(func, FunctionType):
            raise LookupError(owner)
        return canonical_code(func.__code__).codes[part], func.__globals__


def capture(fn: Any, extras: tuple[Any, ...] = (), allow_ambient: bool = False) -> Capture:
    """Capture a function together with values that both sides must mean alike.

    Args:
        fn: any callable.
        extras: classes of arguments, values of static arguments, and the like.
        allow_ambient: the key stands for the function all the same, though no daemon can run it: whoever asks has
            other means to know what it reads.

    Raises:
        AmbientInput: it reads something outside Python's objects.
        CaptureError: it depends on something that cannot be captured; the message names the
            object and how it is reached.
    """
    try:
        walker, roots = _walk(fn, extras)
        ambient = raise_needed(list(roots), allow_ambient) if walker.failed else None
        refuse_patches(walker.packages, walker.patches, walker.made)
        order_sets(walker.unordered)
        schedule = Schedule()
        schedule.add(list(roots))
        return _assemble(walker, schedule, roots, extras, ambient)
    except RecursionError as error:
        raise CaptureError("it is nested too deeply to be captured") from error
    except CaptureError:
        raise
    except Exception as error:  # whatever it is, the function still runs without a daemon
        raise CaptureError(f"it cannot be captured: {type(error).__name__}: {error}") from error


def _walk(fn: Any, extras: tuple[Any, ...]) -> tuple[Walker, tuple[Value, list[Value]]]:
    """Walk again while code turns up that reads what was left out."""
    options: frozenset[str] = frozenset()
    while True:
        walker = Walker(describe_other, options)
        root, others = walker.value(fn), [walker.value(extra) for extra in extras]
        walker.run()
        wanted = {option for option, words in _OPTIONS.items() if words & walker.words}
        if wanted <= options:
            walker.watch.seal()
            return walker, (root, others)
        options |= wanted


def _assemble(
    walker: Walker,
    schedule: Schedule,
    roots: tuple[Value, list[Value]],
    extras: tuple[Any, ...],
    ambient: AmbientInput | None,
) -> Capture:
    made = [step for step in schedule.steps if isinstance(step, Node)]
    return Capture(
        _pickled(schedule.steps, roots),
        _locations(schedule),
        tuple(sorted(walker.packages)),
        walker.watch,
        Numbering(extras, [node.obj for node in made if node.op in NAMEABLE]),
        set_order(list(roots)),
        Holders(schedule.steps),
        list(_located(schedule)),
        {node.index: node.obj for node in made if node.op in SHARED},
        ambient,
        walker.has_opaque,
    )


def _pickled(steps: list[Step], roots: tuple[Value, list[Value]]) -> bytes:
    """Three pickles: of what wrote them, of the steps, and of what these were made for."""
    file = io.BytesIO()
    pickler = Pickler(file)
    has_classes = any(step.op == "class" for step in steps if isinstance(step, Node))
    pickler.dump(tuple(Head(has_classes=has_classes)))
    pickler.dump([_reduced(step) for step in steps])
    pickler.dump(roots)
    return file.getvalue()


def _reduced(step: Step) -> Reduced:
    if isinstance(step, Node):
        return Reduced(step.op, ([need.index for need, _ in step.needs], *step.args))
    node, fill = step
    return Reduced(COMPLETES + fill.op, (node.index, *fill.args))


def _locations(schedule: Schedule) -> bytes:
    """Where the code of each function and module was written, in the order of the program."""
    located = _located(schedule)
    codes = [canonical_code(getattr(obj, "__code__", obj)).locations for obj in located]
    modules = [
        (step.obj.get("__name__"), step.obj.get("__file__"))
        for step in schedule.steps
        if isinstance(step, Node) and step.op == "namespace"
    ]
    return pickle.dumps((codes, modules), protocol=5)


def _located(schedule: Schedule) -> Iterator[Any]:
    """The functions of a program, and the code of its modules, in the order of `Loaded.place_of`."""
    return (step.obj for step in schedule.steps if isinstance(step, Node) and step.op in ("function", "source"))
