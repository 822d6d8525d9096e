"""The interpreter of a capture's program: one object per making step, then its completion."""

from collections.abc import Callable, Iterator
from functools import partial
from types import CodeType, ModuleType
from typing import Any

from .code_objects import build_code
from .format import MAKING
from .inline import installed_module, read_value
from .sandbox import Sandbox
from .sharing import Plan

Maker = Callable[..., Any]

MAKERS: dict[str, Maker] = {}
FILLERS: dict[str, Callable[..., None]] = {}


def makes(op: str) -> Callable[[Maker], Maker]:
    """Register what a making step does: called with the builder and the step's arguments."""

    def register(maker: Maker) -> Maker:
        MAKERS[op] = maker
        return maker

    return register


def fills(op: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register what a completing step does: called with the builder, the object, arguments."""

    def register(filler: Callable[..., None]) -> Callable[..., None]:
        FILLERS[op] = filler
        return filler

    return register


class Builder:
    """Runs one program."""

    def __init__(self, steps: list[list[Any]], codes: list[Any]) -> None:
        self.steps = steps
        self.objects: list[Any] = []
        self.named: list[Any] = []
        self.located: list[Any] = []  # functions and module bodies, in the order of locations
        self.sandbox = Sandbox()
        self.plan = Plan(steps)
        self.ran_user_code = False
        self._codes = codes
        self._n_codes = 0
        self._again: list[Callable[[], None]] = []
        self._at_end: list[Callable[[], None]] = []

    def run(self) -> None:
        """Run all steps. Values that user code changed as classes were made are put back."""
        for step in self.steps:
            if step[0] in MAKING:
                self._make(step)
            else:
                self._fill(step)
        if self.ran_user_code:
            for fill in self._again:
                fill()
        for finish in self._at_end:
            finish()

    def value(self, raw: Any) -> Any:
        """The object that a value of a step stands for."""
        return read_value(raw, self.objects)

    def code(self, body: Any) -> CodeType:
        """The next code object, at its place in the user's files."""
        n = self._n_codes
        self._n_codes += 1
        return build_code(body, self._codes[n] if n < len(self._codes) else ())

    def home(self, raw: Any) -> dict[str, Any]:
        """The globals of the function that is being made."""
        if isinstance(raw, str):
            installed: ModuleType = installed_module(raw)
            return vars(installed)
        group = self.plan.group_of.get(len(self.objects))
        if group is not None:
            return vars(group.module(raw[0], self.sandbox.new_module))
        module: ModuleType = self.value(raw)
        return vars(module)

    def views(self, raw: Any) -> Iterator[tuple[ModuleType, Callable[[Any], Any]]]:
        """The namespaces in which the name that is being bound is read.

        Each comes with what gives values there: a group of shared classes has modules of its own.
        """
        yield self.value(raw), self.value
        for group in self.plan.readers.get(len(self.objects), ()):
            module = partial(group.module, new=self.sandbox.new_module)

            def value(raw: Any, module: Any = module) -> Any:
                return module(raw[0]) if self.plan.is_namespace(raw) else self.value(raw)

            yield module(raw[0]), value

    def again(self, fill: Callable[[], None]) -> None:
        """Remember a completion that user code may undo."""
        self._again.append(fill)

    def at_end(self, finish: Callable[[], None]) -> None:
        """Remember what is to be done when all objects are made."""
        self._at_end.append(finish)

    def _make(self, step: list[Any]) -> None:
        number = len(self.objects)
        op, _, *args = step
        shared = self.plan.shared.get(number)
        if shared is not None:
            obj = shared.objects[number]
            if op == "function":
                self._n_codes += 1
        else:
            obj = MAKERS[op](self, *args)
        self.objects.append(obj)
        if op in ("function", "source"):
            self.located.append(obj)

    def _fill(self, step: list[Any]) -> None:
        op, (number,), *args = step
        if number not in self.plan.shared:
            FILLERS[op](self, self.objects[number], *args)
