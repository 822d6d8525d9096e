"""Runs a capture's program: what its pickle calls makes one object each, or completes one made before."""

import io
from collections.abc import Callable, Iterator
from functools import partial
from types import CodeType, ModuleType
from typing import Any

from jitclient.codec.steps.format import COMPLETES
from jitclient.codec.steps.reading import head_of, read_program
from jitclient.codec.steps.sandbox import Sandbox
from jitclient.codec.steps.sharing import Plan
from jitclient.codec.unpickler import Unpickler
from jitclient.codec.user_code.code import build_code
from jitclient.codec.user_code.names import VALUES, installed_module

Maker = Callable[..., Any]

MAKERS: dict[str, Maker] = {}
"""What makes an object, by the name of its step: called with the builder and the step's arguments."""

FILLERS: dict[str, Callable[..., None]] = {}
"""What completes an object: called with the builder, the object and the step's arguments."""


def register(makers: dict[str, Maker], fillers: dict[str, Callable[..., None]]) -> None:
    """Register steps that need no builder: called with the other arguments alone."""
    MAKERS.update({op: _without_builder(maker) for op, maker in makers.items()})
    FILLERS.update({op: _without_builder(filler) for op, filler in fillers.items()})


def _without_builder(step: Callable[..., Any]) -> Callable[..., Any]:
    return lambda builder, *args: step(*args)


class Builder(Unpickler):
    """Runs one program."""

    def __init__(self, payload: bytes, codes: list[Any]) -> None:
        super().__init__(io.BytesIO(payload))
        self._payload = payload
        self.ops: list[str] = []
        self.objects: list[Any] = []
        self.sandbox = Sandbox()
        self.plan = Plan([])
        self.ran_user_code = False
        self._codes = codes
        self._n_codes = 0
        self._numbers: dict[int, int] = {}  # of namespaces
        self._callables: dict[str, Maker] = dict(VALUES)
        self.again: list[Callable[[], None]] = []  # completions that user code may undo
        self.at_end: list[Callable[[], None]] = []  # what is to be done when all objects are made

    def run(self) -> tuple[Any, list[Any]]:
        """Runs all steps; gives the function and its extras. Values that user code changed meanwhile are put back."""
        head = head_of(self.load())
        self.plan = Plan(read_program(self._payload).items if head.has_classes else [])
        try:
            self.load()
            if self.ran_user_code:
                for fill in self.again:
                    fill()
            for finish in self.at_end:
                finish()
            fn, extras = self.load()
        finally:
            self._callables.clear()  # they hold the builder, and with it all that it made
        return fn, extras

    def object_at(self, number: int) -> Any:
        """The object with that number."""
        return self.objects[number]

    def maker(self, name: str) -> Maker:
        """What a step or a value is made by."""
        found = self._callables.get(name)
        if found is None:
            if name.startswith(COMPLETES):
                found = partial(self._fill, FILLERS[name.removeprefix(COMPLETES)])
            else:
                found = partial(self._make, name, MAKERS[name])
            self._callables[name] = found
        return found

    def code(self, body: Any) -> CodeType:
        """The next code object, at its place in the user's files."""
        n = self._n_codes
        self._n_codes += 1
        return build_code(body, self._codes[n] if n < len(self._codes) else ())

    def namespace(self) -> ModuleType:
        """A new module, which is the object that is being made."""
        module = self.sandbox.new_module()
        self._numbers[id(module)] = len(self.objects)
        return module

    def home(self, home: str | ModuleType) -> dict[str, Any]:
        """The globals of the function that is being made."""
        module: ModuleType = installed_module(home) if isinstance(home, str) else home
        group = self.plan.group_of.get(len(self.objects))
        if group is not None and module is home:
            module = group.module(self._numbers[id(home)], self.sandbox.new_module)
        return vars(module)

    def views(self, home: ModuleType, value: Any) -> Iterator[tuple[ModuleType, Any]]:
        """The namespaces in which the name that is being bound is read, each with the value that it has there.

        A group of shared classes has modules of its own.
        """
        yield home, value
        for group in self.plan.readers.get(len(self.objects), ()):
            module = partial(group.module, new=self.sandbox.new_module)
            number = self._numbers.get(id(value))
            yield module(self._numbers[id(home)]), value if number is None else module(number)

    def _make(self, op: str, maker: Maker, needs: list[int], *args: Any) -> Any:
        number = len(self.objects)
        if number in self.plan.shared:
            obj = self.plan.shared[number]
            if op == "function":
                self._n_codes += 1
        else:
            obj = maker(self, *args)
        self.ops.append(op)
        self.objects.append(obj)
        return obj

    def _fill(self, filler: Callable[..., None], number: int, *args: Any) -> None:
        if number not in self.plan.shared:
            filler(self, self.objects[number], *args)
