"""What captured code sees in place of the world: its own builtins, imports and modules.

Nothing here is a security boundary: a capture is trusted code. It keeps user modules out of
`sys.modules`, and makes a read of an ambient input an error at the moment it happens.
"""

import builtins
import importlib.util
import types
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from ..errors import AmbientInput, CaptureError
from . import captured
from .ambient import AMBIENT_MODULES, ambient_name, message_of, note_read
from .installed import is_user_module

_GUARDED = {*AMBIENT_MODULES, "posixpath", "random", "numpy.random", "io"}
"""Modules whose ambient names are traps for captured code that imports them."""


class Trap:
    """Stands where something was that cannot travel; using it is an error.

    While a program is loaded it may lie in containers, which hash and compare what they hold: it
    is then like any object until it is armed.
    """

    def __init__(self, is_ambient: bool, message: str, is_armed: bool = True) -> None:
        self.__dict__.update(error=(AmbientInput if is_ambient else CaptureError, message), is_armed=is_armed)

    def __repr__(self) -> str:
        return f"<not captured: {self.__dict__['error'][1]}>"

    def _fail(self, *args: object, **kwargs: object) -> NoReturn:
        kind, message = self.__dict__["error"]
        note_read(message)
        raise kind(message)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:  # `isinstance` asks for it; `is` and `type` ask nothing
        return self._fail() if self.__dict__["is_armed"] else Trap

    def __eq__(self, other: object) -> Any:
        return self._fail() if self.__dict__["is_armed"] else self is other

    def __hash__(self) -> int:
        return self._fail() if self.__dict__["is_armed"] else id(self)


def arm(trap: Trap) -> None:
    """Make every use of a trap an error."""
    trap.__dict__["is_armed"] = True


_USES = """
getattr setattr delattr dir call getitem setitem delitem iter next reversed contains len length_hint
bool int float complex index bytes fspath str format round trunc floor ceil
lt le gt ge ne neg pos abs invert enter exit await aiter anext aenter aexit
instancecheck subclasscheck mro_entries copy deepcopy reduce reduce_ex array buffer
"""
_OPERATORS = """
add sub mul matmul truediv floordiv mod divmod pow lshift rshift and or xor
"""

for _use in (*_USES.split(), *_OPERATORS.split(), *(f"r{name}" for name in _OPERATORS.split())):
    setattr(Trap, f"__{_use}__", Trap._fail)


class ModuleView(types.ModuleType):
    """An installed module as captured code sees it: with what user code put on it, and traps."""

    def __init__(self, real: types.ModuleType) -> None:
        super().__init__(real.__name__)
        self.__dict__.update(_real=real, __doc__=real.__doc__)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.__dict__["_real"], name)
        ambient = ambient_name(value)
        if ambient is not None:
            return Trap(True, message_of(ambient))
        return guarded(value) if isinstance(value, types.ModuleType) else value


def guarded(module: Any) -> Any:
    """A view of a module that holds ambient inputs; any other module as it is."""
    if isinstance(module, ModuleView) or module.__name__ not in _GUARDED:
        return module
    return ModuleView(module)


def viewed(module: Any) -> ModuleView:
    """A view of a module, on which attributes can be set without touching the module."""
    return module if isinstance(module, ModuleView) else ModuleView(module)


class Sandbox:
    """The builtins and the user modules of one load."""

    def __init__(self) -> None:
        self.builtins: dict[str, Any] = {**vars(builtins), "__import__": self._import}
        for name in ("open", "input"):
            self.builtins[name] = Trap(True, message_of(name))
        self._sources: dict[str, _Source] = {}
        self._aliases: dict[str, types.ModuleType] = {}

    def new_module(self) -> types.ModuleType:
        """An empty module that only this load knows."""
        module = types.ModuleType(captured.__name__)
        module.__dict__["__builtins__"] = self.builtins
        return module

    def add_source(
        self, name: str, is_package: bool, code: types.CodeType, module: types.ModuleType, gone: list[str]
    ) -> None:
        """A user module that captured code imports by name; it runs when it is first imported.

        `gone` are names that its source binds, and that were deleted from it afterwards.
        """
        self._sources[name] = _Source(is_package, code, module, gone)

    def add_alias(self, name: str, module: types.ModuleType) -> None:
        """A user module without source, importable by name."""
        self._aliases[name] = module

    def _import(
        self,
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        if level:
            names = globals or {}
            package = names.get("__package__") or names["__name__"]
            name = importlib.util.resolve_name("." * level + name, package)
        if name in self._sources or name in self._aliases:
            return self._import_private(name, fromlist or ())
        if is_user_module(name):
            # it was not there either when the function was captured
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return guarded(builtins.__import__(name, globals, locals, fromlist or (), 0))

    def _import_private(self, name: str, fromlist: Sequence[str]) -> types.ModuleType:
        module = self._module(name)
        for wanted in fromlist:
            if f"{name}.{wanted}" in self._sources and not hasattr(module, wanted):
                self._module(f"{name}.{wanted}")
        return module if fromlist else self._module(name.partition(".")[0])

    def _module(self, name: str) -> types.ModuleType:
        if name in self._aliases:
            return self._aliases[name]
        source = self._sources[name]
        if not source.has_run:
            source.has_run = True
            parent, _, leaf = name.rpartition(".")
            above = self._module(parent) if parent in self._sources else None
            source.run(name, parent)
            if above is not None:
                setattr(above, leaf, source.module)
        return source.module


class _Source:
    """A user module that travels as code."""

    def __init__(self, is_package: bool, code: types.CodeType, module: types.ModuleType, gone: list[str]) -> None:
        self.gone = gone
        self.is_package = is_package
        self.code = code
        self.module = module
        self.has_run = False

    def run(self, name: str, parent: str) -> None:
        """Run the module's body; values that differed in the client from its source's stay."""
        module = self.module
        captured = {k: v for k, v in vars(module).items() if not k.startswith("__")}
        module.__name__ = name
        module.__package__ = name if self.is_package else parent
        module.__file__ = self.code.co_filename
        if self.is_package:
            module.__path__ = []
        exec(self.code, vars(module))
        vars(module).update(captured)
        for each in self.gone:
            vars(module).pop(each, None)
