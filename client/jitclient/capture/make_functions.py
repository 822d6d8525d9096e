"""Steps of a program that make functions, and the names that they read."""

from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from .building import Builder, fills, makes
from .format import from_bytes
from .inline import installed_attribute
from .private_imports import Source
from .traps import ModuleView, Trap, arm, guarded, viewed


@makes("code")
def _code(builder: Builder, blob: bytes) -> Any:
    return from_bytes(blob)


@makes("function")
def _function(builder: Builder, code: Any, home: Any, name: str, closure: list[Any], rebinds: bool) -> FunctionType:
    cells = tuple(builder.value(cell) for cell in closure)
    func = FunctionType(builder.code(builder.value(code)), builder.home(home), name, None, cells)
    func.__qualname__ = name
    return func


@fills("defaults")
def _defaults(builder: Builder, func: FunctionType, defaults: Any) -> None:
    func.__defaults__ = builder.value(defaults)


@fills("kwdefaults")
def _keyword_defaults(builder: Builder, func: FunctionType, defaults: Any) -> None:
    func.__kwdefaults__ = dict(builder.value(defaults))


@fills("attributes")
def _attributes(builder: Builder, func: FunctionType, attributes: Any) -> None:
    for name, value in builder.value(attributes):
        setattr(func, name, value)


@fills("annotations")
def _annotations(builder: Builder, func: FunctionType, annotations: Any) -> None:
    func.__annotations__ = dict(builder.value(annotations))


@makes("cell")
def _cell(builder: Builder) -> CellType:
    return CellType()


@fills("set_cell")
def _set_cell(builder: Builder, cell: CellType, content: Any) -> None:
    cell.cell_contents = builder.value(content)


@makes("method")
def _method(builder: Builder, func: Any, owner: Any) -> MethodType:
    return MethodType(builder.value(func), builder.value(owner))


@makes("namespace")
def _namespace(builder: Builder) -> ModuleType:
    return builder.sandbox.new_module()


@makes("bind")
def _bind(builder: Builder, home: Any, name: str, raw: Any) -> None:
    for module, value_of in builder.views(home):
        value = value_of(raw)
        if isinstance(value, ModuleType) and value.__name__ != "numpy":
            value = guarded(value)
        names = vars(module)
        names[name] = value
        builder.again(lambda names=names, value=value: names.__setitem__(name, value))  # type: ignore[misc]


@makes("patch")
def _patch(builder: Builder, home: Any, name: str, dotted: list[str], raw: Any) -> None:
    for module, value_of in builder.views(home):
        value = value_of(raw)
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


@makes("whole")
def _whole(builder: Builder, home: Any) -> None:
    return None


@makes("names")
def _names(builder: Builder, home: Any) -> dict[str, Any]:
    module: ModuleType = builder.value(home)
    return vars(module)


@makes("source")
def _source(builder: Builder, name: str, is_package: bool, code: Any, home: Any, gone: list[str]) -> CodeType:
    body = builder.code(builder.value(code))
    builder.sandbox.imports.add(name, Source(name, is_package, body, builder.value(home), gone))
    return body


@makes("alias")
def _alias(builder: Builder, name: str, home: Any) -> None:
    builder.sandbox.imports.add_alias(name, builder.value(home))


@makes("trap")
def _trap(builder: Builder, is_ambient: bool, message: str) -> Trap:
    trap = Trap(is_ambient, message, is_armed=False)
    builder.at_end(lambda: arm(trap))
    return trap
