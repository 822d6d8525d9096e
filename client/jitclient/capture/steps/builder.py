"""Interpreter of a capture's program: each call in its pickle makes one object or completes one.

Steps that need only their arguments are in `make_classes.py` and `make_values.py`. Steps that make functions and bind
the names that functions read are in this module.
"""

import io
from collections.abc import Callable, Iterator
from functools import partial
from types import CodeType, FunctionType, ModuleType
from typing import Any

from jitclient.capture.ambient.traps import Flags, ModuleView, Trap, arm, guarded, viewed
from jitclient.capture.codec.unpickler import Unpickler
from jitclient.capture.steps import make_classes, make_values
from jitclient.capture.steps.format import COMPLETION_PREFIX, head_of, read
from jitclient.capture.steps.sandbox import Sandbox
from jitclient.capture.steps.sharing import Plan
from jitclient.capture.user_code.code import build_code
from jitclient.capture.user_code.names import VALUES, installed_attribute, installed_module


class Builder(Unpickler):
    """Unpickler that runs one program."""

    def __init__(self, payload: bytes, codes: list[Any]) -> None:
        super().__init__(io.BytesIO(payload))
        self.ops: list[str] = []
        self.objects: list[Any] = []
        self.plan = Plan([])
        self._payload = payload
        self._codes = iter(codes)
        self._sandbox = Sandbox()
        self._numbers: dict[int, int] = {}  # number of each namespace, by its id
        self._ran_user_code = False
        # User code may undo these completions, so they run again at the end if user code ran.
        self._rerun: list[Callable[[], Any]] = []
        self._final_steps: list[Callable[[], None]] = []  # runs when all objects are made
        self._callables: dict[str, Callable[..., Any]] = {}

    def run(self) -> tuple[Any, list[Any]]:
        """Run all steps and return the function and its extras.

        Contents of containers and bindings that user code changed meanwhile are restored.
        """
        head = head_of(self.load())
        self.plan = Plan(read(self._payload).items if head.has_classes else [])
        try:
            self._callables = {
                **VALUES,
                **{op: partial(self._make, op, maker) for op, maker in self._makers().items()},
                **{COMPLETION_PREFIX + op: partial(self._fill, filler) for op, filler in self._fillers().items()},
            }
            self.load()
            for finish in [*(self._rerun if self._ran_user_code else ()), *self._final_steps]:
                finish()
            fn, extras = self.load()
        finally:
            # The callables refer to the builder, and so would keep all its objects alive.
            self._callables.clear()
        return fn, extras

    def object_at(self, number: int) -> Any:
        """Return the object with this number."""
        return self.objects[number]

    def maker(self, name: str) -> Callable[..., Any]:
        """Return the function that runs a step or makes a value, by name."""
        return self._callables[name]

    def _makers(self) -> dict[str, Callable[..., Any]]:
        """Return the functions that make objects, by the name of their step."""
        return {
            **make_values.MAKERS,
            "alias": self._sandbox.add_module,
            "bind": self._bind,
            "class": make_classes.make_class,
            "flags": self._flags,
            "function": self._function,
            "namespace": self._namespace,
            "of_client": self._of_client,
            "patch": self._patch,
            "trap": self._trap,
            "whole": self._whole,
        }

    def _fillers(self) -> dict[str, Callable[..., None]]:
        """Return the functions that complete objects, by the name of their step.

        Each is called with the object and the step's arguments.
        """
        containers = dict.fromkeys(("add", "extend", "update"), self._fill_repeatedly)
        return {**make_values.FILLERS, **make_classes.FILLERS, **containers}

    def _make(self, op: str, maker: Callable[..., Any], needs: list[int], *args: Any) -> Any:
        number = len(self.objects)
        if number in self.plan.shared:
            obj = self.plan.shared[number]
            if op == "function":
                next(self._codes, None)
        else:
            obj = maker(*args)
            self._ran_user_code |= op == "class" and args[0] != make_classes.EXACT
        self.ops.append(op)
        self.objects.append(obj)
        return obj

    def _fill(self, filler: Callable[..., None], number: int, *args: Any) -> None:
        if number not in self.plan.shared:
            filler(self.objects[number], *args)

    def _fill_repeatedly(self, target: Any, items: Any) -> None:
        def fill() -> None:
            target.clear()
            (target.extend if type(target) is list else target.update)(items)

        fill()
        self._rerun.append(fill)

    def _function(
        self, code: Any, home: str | ModuleType, name: str, closure: list[Any], rebinds: bool
    ) -> FunctionType:
        module: ModuleType = installed_module(home) if isinstance(home, str) else home
        group = self.plan.group_of.get(len(self.objects))
        if group is not None and module is home:
            module = group.module(self._numbers[id(home)], self._sandbox.new_module)
        func = FunctionType(self._placed(code), vars(module), name, None, tuple(closure))
        func.__qualname__ = name
        return func

    def _placed(self, body: Any) -> CodeType:
        """Make a code object at the next location in the user's files."""
        return build_code(body, iter(next(self._codes, ())))

    def _namespace(self) -> ModuleType:
        module = self._sandbox.new_module()
        self._numbers[id(module)] = len(self.objects)
        return module

    def _bind(self, home: ModuleType, name: str, bound: Any) -> None:
        for module, value in self._views(home, bound):
            if isinstance(value, ModuleType) and value.__name__ != "numpy":
                value = guarded(value)
            bind = partial(vars(module).__setitem__, name, value)
            bind()
            self._rerun.append(bind)

    def _whole(self, home: ModuleType, in_order: list[str]) -> None:
        names = vars(home)
        self._final_steps.append(lambda: names.update({name: names.pop(name) for name in in_order if name in names}))

    def _patch(self, home: ModuleType, name: str, dotted: list[str], put: Any) -> None:
        for module, value in self._views(home, put):
            names = vars(module)
            if not isinstance(value, Trap) and _is_as_installed(names[name], dotted, value):
                continue
            view = names[name] = viewed(names[name])
            for part in dotted[:-1]:
                inner = viewed(getattr(view, part))
                vars(view)[part] = inner
                view = inner
            vars(view)[dotted[-1]] = value

    def _views(self, home: ModuleType, value: Any) -> Iterator[tuple[ModuleType, Any]]:
        """Iterate over the namespaces in which code reads the name being bound, with its value in each.

        A group of shared classes has modules of its own.
        """
        yield home, value
        for group in self.plan.readers.get(len(self.objects), ()):
            module = partial(group.module, new=self._sandbox.new_module)
            number = self._numbers.get(id(value))
            yield module(self._numbers[id(home)]), value if number is None else module(number)

    def _trap(self, is_ambient: bool, message: str) -> Trap:
        return self._arm_later(Trap(is_ambient, message, is_armed=False))

    def _flags(self, message: str, flags: Any) -> Trap:
        return self._arm_later(Flags(message, dict(flags), is_armed=False))

    def _of_client(self, is_callable: bool) -> Any:
        trap = self._trap(False, "the trace uses an object that only a callback was expected to use")
        return (lambda *args, **kwargs: trap._fail()) if is_callable else trap

    def _arm_later(self, trap: Trap) -> Trap:
        self._final_steps.append(partial(arm, trap))
        return trap


def _is_as_installed(module: Any, dotted: list[str], value: Any) -> bool:
    """Return whether an installed module already holds this value; captured code then sees the module itself."""
    real = vars(module)["_real"] if isinstance(module, ModuleView) else module
    try:
        held = installed_attribute(real.__name__, ".".join(dotted))
        return type(held) is type(value) and bool(held == value)
    except Exception:
        # The attribute may be missing here, or its comparison may raise any exception.
        return False
