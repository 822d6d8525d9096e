"""Steps of a program that make functions, and the names that they read."""

from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from jitclient.codec.ambient.traps import Flags, ModuleView, Trap, arm, guarded, viewed
from jitclient.codec.steps.builder import MAKERS, Builder, register
from jitclient.codec.steps.private_imports import Source
from jitclient.codec.unpickler import from_bytes
from jitclient.codec.user_code.names import installed_attribute


def _function(builder: Builder, code: Any, home: Any, name: str, closure: list[Any], rebinds: bool) -> FunctionType:
    func = FunctionType(builder.code(code), builder.home(home), name, None, tuple(closure))
    func.__qualname__ = name
    return func


def _attributes(func: FunctionType, attributes: Any) -> None:
    for name, value in attributes:
        setattr(func, name, value)


def _bind(builder: Builder, home: ModuleType, name: str, bound: Any) -> None:
    for module, value in builder.views(home, bound):
        if isinstance(value, ModuleType) and value.__name__ != "numpy":
            value = guarded(value)
        names = vars(module)
        names[name] = value
        builder.again.append(lambda names=names, value=value: names.__setitem__(name, value))  # type: ignore[misc]


def _patch(builder: Builder, home: ModuleType, name: str, dotted: list[str], put: Any) -> None:
    for module, value in builder.views(home, put):
        names = vars(module)
        if not isinstance(value, Trap) and _is_as_installed(names[name], dotted, value):
            continue
        view = names[name] = viewed(names[name])
        for part in dotted[:-1]:
            inner = viewed(getattr(view, part))
            vars(view)[part] = inner
            view = inner
        vars(view)[dotted[-1]] = value


def _is_as_installed(module: Any, dotted: list[str], value: Any) -> bool:
    """Whether a module has this value anyway: then code sees the module itself."""
    real = vars(module)["_real"] if isinstance(module, ModuleView) else module
    try:
        held = installed_attribute(real.__name__, ".".join(dotted))
        return type(held) is type(value) and bool(held == value)
    except Exception:  # it may be missing here, or compare in any way it likes
        return False


def _source(builder: Builder, name: str, is_package: bool, code: Any, home: Any, gone: list[str]) -> CodeType:
    body = builder.code(code)
    builder.sandbox.imports.add(name, Source(name, is_package, body, home, gone))
    return body


def _trap(builder: Builder, is_ambient: bool, message: str) -> Trap:
    return _armed_at_end(builder, Trap(is_ambient, message, is_armed=False))


def _of_client(builder: Builder, is_callable: bool) -> Any:
    trap = _trap(builder, False, "it uses what was only to be handed over to a callback")
    return (lambda *args, **kwargs: trap._fail()) if is_callable else trap


def _flags(builder: Builder, message: str, flags: Any) -> Trap:
    return _armed_at_end(builder, Flags(message, dict(flags), is_armed=False))


def _armed_at_end(builder: Builder, trap: Trap) -> Trap:
    builder.at_end.append(lambda: arm(trap))
    return trap


MAKERS.update(
    alias=lambda builder, name, home: builder.sandbox.imports.add_alias(name, home),
    bind=_bind,
    flags=_flags,
    function=_function,
    namespace=Builder.namespace,
    of_client=_of_client,
    patch=_patch,
    source=_source,
    trap=_trap,
)
register(
    makers={"cell": CellType, "code": from_bytes, "method": MethodType, "names": vars, "whole": lambda home: None},
    fillers={
        "annotations": lambda func, annotations: setattr(func, "__annotations__", dict(annotations)),
        "attributes": _attributes,
        "defaults": lambda func, defaults: setattr(func, "__defaults__", defaults),
        "kwdefaults": lambda func, defaults: setattr(func, "__kwdefaults__", dict(defaults)),
        "set_cell": lambda cell, content: setattr(cell, "cell_contents", content),
    },
)
