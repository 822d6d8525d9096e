"""Functions that are replaced during imports, and put back afterwards: also where an import has bound them."""

import functools
import sys
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any


class Replacement:
    """Replacement of functions by others that record their calls, from the first `put` to `undo`."""

    def __init__(self) -> None:
        self._replaced: list[tuple[Any, str, Any, Any, bool]] = []
        self._known: set[str] = set()
        self._watched: list[tuple[ModuleType, str, Any]] = []

    def put(self, owner: Any, name: str, function: Any) -> None:
        """Let `owner.name`, an attribute of a module or of another object, be this function.

        The attribute may be that of the owner's class, or of its bases.
        """
        if not self._replaced:
            self._known = {*sys.modules}
        self._replaced.append((owner, name, getattr(owner, name), function, name in vars(owner)))
        if isinstance(function, FunctionType):
            # An import may store its name, as `functools.wraps` does.
            functools.update_wrapper(function, self._replaced[-1][2])
        setattr(owner, name, function)

    def watch(self, module: ModuleType, name: str, before_read: Callable[[], None]) -> None:
        """Call a function before each look-up of an attribute of a module by Python code, until `undo`."""
        value = vars(module).pop(name)

        def look_up(attribute: str) -> Any:
            if attribute != name:
                problem = f"module {module.__name__!r} has no attribute {attribute!r}"
                raise AttributeError(problem, name=attribute, obj=module)
            before_read()
            return value

        # Python calls this function for an attribute that is not there. A class of its own for the module would be that
        # of others, too: Python makes each module with `type(sys)`.
        vars(module)["__getattr__"] = look_up
        self._watched.append((module, name, value))

    def undo(self) -> None:
        """Put all functions back, also in modules that were imported since then: `from builtins import open`."""
        for watched, attribute, value in self._watched:
            del vars(watched)["__getattr__"]
            vars(watched).setdefault(attribute, value)
        originals = {}
        for owner, name, original, function, is_own in reversed(self._replaced):
            if is_own:
                setattr(owner, name, original)
            else:
                delattr(owner, name)
            originals[id(function)] = original
        for module in sys.modules.keys() - self._known:
            namespace = getattr(sys.modules[module], "__dict__", {})
            if originals.keys().isdisjoint(map(id, list(namespace.values()))):  # of nearly all modules, and fast
                continue
            for name, value in dict(namespace).items():
                if id(value) in originals:
                    namespace[name] = originals[id(value)]
        self._replaced.clear()
        self._watched.clear()
