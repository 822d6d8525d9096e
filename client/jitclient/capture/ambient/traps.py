"""Stand-ins for ambient inputs and other objects that cannot be captured."""

import types
from typing import Any, NoReturn

from jitclient.capture.ambient.inputs import AMBIENT_MODULES, ambient_name, message_of, record_read
from jitclient.errors import AmbientInput, CaptureError

_GUARDED = {*AMBIENT_MODULES, "builtins", "posixpath", "random", "numpy.random", "io"}
"""Modules whose ambient names become traps for captured code that imports them."""


class Trap:
    """Stand-in for an object that cannot be captured; any use raises an error.

    While a program is loaded, the trap may lie in containers, which hash and compare their items. An unarmed trap
    therefore hashes and compares like any object.
    """

    # `abc` reads it when it makes a class that holds the trap.
    __isabstractmethod__ = False

    def __init__(self, is_ambient: bool, message: str, is_armed: bool = True) -> None:
        self.__dict__.update(error=(AmbientInput if is_ambient else CaptureError, message), is_armed=is_armed)

    def __repr__(self) -> str:
        return f"<not captured: {self.__dict__['error'][1]}>"

    def _fail(self, *args: object, **kwargs: object) -> NoReturn:
        kind, message = self.__dict__["error"]
        record_read(message)
        raise kind(message)

    @property  # type: ignore[misc]
    # `isinstance` reads `__class__`; `is` and `type` do not.
    def __class__(self) -> Any:
        return self._fail() if self.__dict__["is_armed"] else Trap

    def __eq__(self, other: object) -> Any:
        return self._fail() if self.__dict__["is_armed"] else self is other

    def __hash__(self) -> int:
        return self._fail() if self.__dict__["is_armed"] else id(self)


def arm(trap: Trap) -> None:
    """Make every later use of a trap raise its error."""
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


class Flags(Trap):
    """Stand-in for absl's flags: captured flags can be read by name; any other use raises an error."""

    def __init__(self, message: str, flags: dict[str, Any], is_armed: bool = True) -> None:
        super().__init__(True, message, is_armed)
        self.__dict__["flags"] = flags

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("_"):
            return object.__getattribute__(self, name)
        flags = self.__dict__["flags"]
        return flags[name] if name in flags else self._fail()


class ModuleView(types.ModuleType):
    """View of an installed module for captured code: user patches are visible and ambient names are traps."""

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
    """Return a view of a module that holds ambient inputs; return any other module unchanged."""
    if isinstance(module, ModuleView) or module.__name__ not in _GUARDED:
        return module
    return ModuleView(module)


def viewed(module: Any) -> ModuleView:
    """Return a view of a module; attributes can be set on the view without changing the module."""
    return module if isinstance(module, ModuleView) else ModuleView(module)
