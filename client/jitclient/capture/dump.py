"""Writer of captures (the client's half): turns a function into its capture."""

import io
import pickle
import re
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any, NamedTuple

from jitclient.capture.ambient.patches import raise_if_patched
from jitclient.capture.budget import Budget
from jitclient.capture.codec.pickler import Pickler
from jitclient.capture.codec.plain import Reduced
from jitclient.capture.describe import containers, dispatch, functions, wrappers  # noqa: F401  (they register)
from jitclient.capture.graph.failed_objects import raise_needed
from jitclient.capture.graph.nodes import Node, Value
from jitclient.capture.graph.schedule import Schedule, Step, order_sets
from jitclient.capture.graph.set_order import set_order
from jitclient.capture.graph.walker import Walker
from jitclient.capture.graph.watch import Watch
from jitclient.capture.objects import ObjectIndex
from jitclient.capture.steps.format import COMPLETION_PREFIX, IDENTITY_OPS, INDEXED_OPS, LOCATED_OPS, Head
from jitclient.capture.user_code.code import canonical_code
from jitclient.core.digests import digest
from jitclient.errors import AmbientInput, CaptureError

_OPTIONS = {
    "docs": frozenset({"__doc__", "attrgetter", "getdoc"}),
    "annotations": frozenset(
        {
            *("__annotations__", "attrgetter", "from_callable", "get_annotations", "get_type_hints"),
            *("getfullargspec", "register", "signature"),
        }
    ),
    "qualnames": frozenset({"__qualname__", "attrgetter"}),
    "locks": frozenset({"_is_owned", "acquire", "locked", "notify", "notify_all", "release"}),
    "errors": frozenset(
        {
            *("__cause__", "__context__", "__suppress_context__", "__traceback__"),
            *("traceback", "TracebackException", "format_exception", "print_exception"),
        }
    ),
    "locals": frozenset(
        {
            *("dir", "eval", "exec", "locals", "vars"),
            *("co_cellvars", "co_freevars", "co_varnames"),
            *("ag_frame", "cr_frame", "f_back", "f_locals", "gi_frame", "tb_frame"),
            *("_getframe", "currentframe", "getframeinfo", "stack", "trace", "walk_stack", "walk_tb"),
            *("attrgetter", "dis"),
            *("getclosurevars", "getcoroutinelocals", "getgeneratorlocals", "getinnerframes", "getouterframes"),
        }
    ),
}
"""Parts of definitions that are captured only if reachable code uses one of the listed words."""


_CALLS_BACK = frozenset({"callback", "io_callback", "pure_callback"})
"""Words of code with effects in the client's process."""


class Capture(ObjectIndex):
    """Function as canonical bytes, with all the user code and values that it depends on.

    Attributes:
        payload: the bytes that are digested and loaded.
        key: digest of the payload, in hex.
        function_key: key of the function's capture without extras.
        locations: file names, lines and local names, for people; not part of the key.
        packages: installed packages that the capture refers to, by import name, sorted.
        held: names of objects of installed modules in it, "module:name": code may read their attributes.
        watch: record of everything that the function reads, to detect changes. The extras are not watched.
        unchanged: returns whether no name, cell, definition or source file that the function reads has changed since.
        set_order: how the function depends on the order of sets; None if it does not.
        ambient: the first ambient input that the function reads, where the caller allowed it; None if there is none.
    """

    def __init__(
        self, walk: "_Walk", extras: tuple[Any, ...], ambient: AmbientInput | None, include_set_order: bool
    ) -> None:
        function, values = walk.roots
        schedule = Schedule(walk.walker.budget)
        # The function first, so that its steps are the same with any extras.
        schedule.add(function)
        of_function = schedule.steps.copy()
        schedule.add(values)
        self.set_order = set_order(list(walk.roots))
        if include_set_order and self.set_order is not None and self.set_order.key is not None:
            extras, values = (*extras, self.set_order.key), [*values, self.set_order.key]
        made = _nodes(schedule.steps)
        super().__init__(extras, [node.obj for node in made if node.op in INDEXED_OPS])
        self._located = [node.obj for node in made if node.op in LOCATED_OPS]
        self._shared = {node.index: node.obj for node in made if node.op in IDENTITY_OPS}
        self.payload = _pickled(schedule.steps, function, values, walk.walker.is_address)
        self.key = digest(self.payload).hex()
        self.function_key = (
            digest(_pickled(of_function, function, [], walk.walker.is_address)).hex() if extras else self.key
        )
        self.locations = _locations(self._located, [node.obj for node in made if node.op == "namespace"])
        self.packages = tuple(sorted(walk.walker.packages))
        self.held = frozenset(map(":".join, walk.walker.held))
        self.watch = walk.watch
        self.unchanged: Callable[[], bool] = walk.watch.unchanged
        self.ambient = ambient

    def made_at(self, number: int) -> Any:
        """Return the captured object with the number that a load gives it.

        Raises:
            LookupError: there is no such object, or its identity does not matter.
        """
        return self._shared[number]

    def code_at(self, owner: int, part: int) -> tuple[CodeType, dict[str, Any]]:
        """Return the code object at a place, and the globals that it reads.

        Raises:
            LookupError: there is no such place.
        """
        func = self._located[owner]
        if min(owner, part) < 0 or not isinstance(func, FunctionType):
            raise LookupError(owner)
        return canonical_code(func.__code__).codes[part], func.__globals__


def capture(
    fn: Any,
    extras: tuple[Any, ...] = (),
    allow_ambient: bool = False,
    include_set_order: bool = False,
    budget: Budget | None = None,
) -> Capture:
    """Capture a function together with values that must mean the same on both sides.

    Args:
        fn: any callable.
        extras: classes of arguments, values of static arguments, and similar values.
        allow_ambient: allow ambient inputs. The key then identifies the function although no daemon can run it; the
            caller must track the inputs by other means.
        include_set_order: add the key of the set order, if there is one, to the extras.
        budget: processor time that the capture may take; without one, it takes as long as it takes.

    Raises:
        AmbientInput: the function reads an ambient input.
        CaptureTooSlow: the budget is spent.
        CaptureError: the function depends on an object that cannot be captured. The message names the object and the
            path to it.
    """
    try:
        walk = _walk(fn, extras, budget)
        walker = walk.walker
        calls_back = not _CALLS_BACK.isdisjoint(walker.words)
        ambient = raise_needed(list(walk.roots), allow_ambient, calls_back) if walker.failed else None
        raise_if_patched(walker.packages, walker.patches, walker.made)
        order_sets(walker.unordered)
        return Capture(walk, extras, ambient, include_set_order)
    except RecursionError as error:
        raise CaptureError("the function or its data is nested too deeply to be captured") from error
    except CaptureError:
        raise
    except Exception as error:
        # The function can run without a daemon, whatever the error is.
        raise CaptureError(f"the function cannot be captured: {type(error).__name__}: {error}") from error


class _Walk(NamedTuple):
    """Finished walk from a function and its extras."""

    walker: Walker
    roots: tuple[Value, list[Value]]
    watch: Watch  # of the function alone


def _walk(fn: Any, extras: tuple[Any, ...], budget: Budget | None) -> _Walk:
    """Walk the function's dependencies, again if reachable code reads parts that the walk left out."""
    options: frozenset[str] = frozenset()
    while True:
        walker = Walker(options, budget)
        function = walker.value(fn)
        walker.run()
        watch, walker.watch = walker.watch, Watch()
        values = [walker.value(extra) for extra in extras]
        walker.run()
        wanted = {option for option, words in _OPTIONS.items() if words & walker.words}
        wanted |= walker.left_out & walker.words
        if wanted <= options:
            watch.start()
            return _Walk(walker, (function, values), watch)
        options |= wanted


def _nodes(steps: list[Step]) -> list[Node]:
    return [step for step in steps if isinstance(step, Node)]


class _Recorder(Pickler):
    """Pickler that keeps the strings and numbers which may contain the address of an object."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.suspects: set[str] = set()

    def persistent_id(self, obj: Any) -> Any:
        kind = type(obj)
        if (kind is str and len(obj) >= _ADDRESS_LENGTH) or (kind is int and obj >= 10**_ADDRESS_LENGTH):
            self.suspects.add(str(obj))
        return super().persistent_id(obj)


_ADDRESS_LENGTH = 9
_NUMBERS = re.compile(rf"(?<= at )0x[0-9a-f]+|[0-9]{{{_ADDRESS_LENGTH},}}")


def _raise_if_address(texts: set[str], is_address: Callable[[int], bool]) -> None:
    """Check that no text contains the address of an object, because the key would differ in each process.

    Raises:
        CaptureError: a text contains an address.
    """
    for text in texts:
        for number in _NUMBERS.findall(text):
            if number.startswith("0x") or is_address(int(number)):
                raise CaptureError(f"{text!r:.80} contains the address of an object, which differs between processes")


def _pickled(steps: list[Step], function: Value, extras: list[Value], is_address: Callable[[int], bool]) -> bytes:
    """Write three pickles: the head with the format, the steps, and the roots (function and extras).

    Raises:
        CaptureError: the contents differ in each process.
    """
    file = io.BytesIO()
    pickler = _Recorder(file)
    pickler.dump(tuple(Head(has_classes=any(node.op == "class" for node in _nodes(steps)))))
    pickler.dump([_reduced(step) for step in steps])
    pickler.dump((function, extras))
    _raise_if_address(pickler.suspects, is_address)
    return file.getvalue()


def _reduced(step: Step) -> Reduced:
    if isinstance(step, Node):
        return Reduced(step.op, ([need.index for need, _ in step.needs], *step.args))
    node, fill = step
    return Reduced(COMPLETION_PREFIX + fill.op, (node.index, *fill.args))


def _locations(located: list[Any], namespaces: list[dict[str, Any]]) -> bytes:
    """Return where each function and module was written, in the order of the program."""
    codes = [canonical_code(getattr(obj, "__code__", obj)).locations for obj in located]
    modules = [(names.get("__name__"), names.get("__file__")) for names in namespaces]
    return pickle.dumps((codes, modules), protocol=5)
