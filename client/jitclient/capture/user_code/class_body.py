"""Definition of a class, without the attributes that Python and decorators added."""

import abc
import dataclasses
import enum
import types
from collections.abc import Mapping
from typing import Any, NamedTuple

from jitclient.capture.user_code.ownership import is_user_function
from jitclient.errors import CaptureError

MADE_BY_PYTHON = frozenset(
    {
        "__abstractclassvars__",
        "__abstractmethods__",
        "__abstractvars__",
        "__classdictcell__",
        "__dict__",
        "__firstlineno__",
        "__module__",
        "__pydantic_core_schema__",
        "__qualname__",
        "__slotnames__",
        "__static_attributes__",
        "__weakref__",
        "_abc_impl",
    }
)
_OF_DATACLASSES = ("__dataclass_fields__", "__dataclass_params__", "__match_args__")


class Body(NamedTuple):
    """Definition of a class, split by origin.

    Attributes:
        namespace: the attributes that the class is made from.
        imposed: attributes that decorators added or changed later.
        members: attributes that an enum's own code or the program has set on its members.
        is_restored: whether the enum's own code, which initializes its members, is not to run again.
    """

    namespace: dict[str, Any]
    imposed: dict[str, Any]
    members: Mapping[str, Mapping[str, Any]] = types.MappingProxyType({})
    is_restored: bool = False


def body_of(cls: type, keep_docs: bool, is_replayed: bool) -> Body:
    """Return the namespace from which a class can be made again.

    Args:
        cls: the class.
        keep_docs: whether its docstring counts.
        is_replayed: whether installed code takes part in making the class, as a metaclass that makes a dataclass of it.
    """
    if issubclass(cls, enum.Enum):
        return _enum_body(cls)
    names = {
        name: value
        for name, value in cls.__dict__.items()
        if name not in MADE_BY_PYTHON
        and (keep_docs or name != "__doc__")
        # Python adds an empty `__annotations__` when it is read.
        and not (name == "__annotations__" and not value)
        and not isinstance(value, (types.MemberDescriptorType, types.GetSetDescriptorType))
    }
    if "__dataclass_fields__" not in names or not is_replayed or type(cls) in (type, abc.ABCMeta):
        return Body(names, {})
    return _undo_dataclass(names)


def _undo_dataclass(names: dict[str, Any]) -> Body:
    """Separate the attributes that `dataclasses` generated, and put the fields back into the namespace.

    A metaclass may make the dataclass itself.
    """
    generated = {name for name, value in names.items() if is_generated(name, value)}
    annotations = names.get("__annotations__", {})
    fields: dict[str, Any] = {
        name: field
        for name, field in names["__dataclass_fields__"].items()
        if name in annotations and isinstance(field, dataclasses.Field)
    }
    # A name of an inherited field may be the class's own, and is no field then.
    imposed = {name: names[name] for name in names if name in generated or name in names["__dataclass_fields__"]}
    body = {name: value for name, value in names.items() if name not in generated}
    return Body({**body, **fields}, imposed)


def is_generated(name: str, value: Any) -> bool:
    """Return whether `dataclasses` made an attribute of a class."""
    code = getattr(value, "__code__", None)
    return name in _OF_DATACLASSES or getattr(code, "co_filename", "") == "<string>"


def _enum_body(cls: type[enum.Enum]) -> Body:
    """Return the definition of an enum, made from its members' values.

    The enum's own `__new__` and `__init__` do not run again, because their arguments are not kept. Attributes that they
    set on members are restored.

    Raises:
        CaptureError: the enum has a data type and its own `__new__`, or a combination of flags has attributes.
    """
    values = {name: member._value_ for name, member in cls.__members__.items()}
    own = {
        name: value
        for name, value in cls.__dict__.items()
        if name not in MADE_BY_PYTHON and name not in values and _is_own(name, value)
    }
    members = {
        name: state
        for name, member in cls.__members__.items()
        if name == member._name_ and (state := {k: v for k, v in vars(member).items() if k not in _OF_MEMBERS})
    }
    for member in cls._value2member_map_.values():
        if member._name_ not in cls.__members__ and vars(member).keys() - _OF_MEMBERS:
            raise CaptureError(f"{member!r} has attributes that the program has set, and no name")
    if not any(hook in vars(base) for base in cls.__mro__ for hook in _hooks_of(base)):
        return Body({**own, **values}, {}, members)
    if getattr(cls, "_member_type_", object) is not object:
        if any("__new_member__" in _hooks_of(base) for base in cls.__mro__):
            raise CaptureError(f"{cls.__qualname__}: an enum with a data type and its own __new__ cannot be captured")
        return Body({**own, **values}, {}, members)
    imposed = {name: own.pop(name) for name in _ENUM_HOOKS if name in own}
    return Body({**own, **values}, imposed, members, is_restored=True)


_ENUM_HOOKS = ("__init__", "__new_member__")
_OF_MEMBERS = frozenset({"_value_", "_name_", "__objclass__", "_sort_order_", "_inverted_"})
"""Attributes that members of enums have without anyone's doing; the last one comes when it is first asked for."""

_ENUM_NAMES = frozenset({"_generate_next_value_", "_missing_"})


def _hooks_of(cls: type) -> list[str]:
    return [name for name in _ENUM_HOOKS if is_user_function(_bare(vars(cls).get(name)))]


def _is_own(name: str, value: Any) -> bool:
    """Return whether the author of an enum wrote an attribute, rather than its metaclass."""
    if name[0] != "_" or name[-1] != "_":
        return True
    is_sunder = not name.startswith("__")
    return is_user_function(_bare(value)) and (not is_sunder or name in _ENUM_NAMES)


def _bare(value: Any) -> Any:
    return getattr(value, "__func__", value)
