"""Steps of a program that make classes, each in one call of its metaclass."""

import abc
import contextlib
import dataclasses
import types
from collections.abc import Callable, Iterator
from typing import Any

from jitclient.capture.steps import captured
from jitclient.capture.steps.sharing import is_captured_class, record_class
from jitclient.capture.user_code.ownership import is_user_class
from jitclient.capture.user_code.registry import register

EXACT = "exact"
"""Mode for a class whose namespace is complete; other modes run user code."""


def make_class(mode: str, meta: Any, name: str, bases: Any, namespace: Any, keywords: Any) -> type:
    """Make a class in the mode that its step gives."""
    parents = tuple(bases)
    names = {"__module__": captured.__name__, "__qualname__": name, **dict(namespace)}
    if mode == EXACT:
        cls = _make_exactly(meta, name, parents, names)
    elif mode == "restored_enum":
        names.update(__new__=_plain_member, __init__=_do_nothing)
        cls = _make_as_stated(meta, name, parents, names, dict(keywords))
        for attribute in ("__init__", "__new_member__"):
            type.__delattr__(cls, attribute)
    else:
        cls = _make_as_stated(meta, name, parents, names, dict(keywords))
    record_class(cls)
    return cls


def _plain_member(cls: type, *value: Any) -> Any:
    """Make a member of an enum without running the enum's own `__new__`."""
    return object.__new__(cls)


def _make_exactly(meta: Any, name: str, bases: tuple[type, ...], names: dict[str, Any]) -> type:
    """Make a class without running user code, from its complete namespace.

    Attributes whose type has `__set_name__` are set afterwards, because Python then does not call `__set_name__`.
    """
    later = {k: v for k, v in names.items() if _has_set_name(v)}
    maker: Any = next(m for m in meta.__mro__ if m in (abc.ABCMeta, type))
    with _silent_subclassing(bases):
        now = names | dict.fromkeys(later)
        cls: type = maker.__new__(meta, name, bases, now)
    for attribute, value in later.items():
        type.__setattr__(cls, attribute, value)
    return cls


def _has_set_name(value: Any) -> bool:
    kind = type(value)
    return hasattr(kind, "__set_name__") and is_user_class(kind)


@contextlib.contextmanager
def _silent_subclassing(bases: tuple[type, ...]) -> Iterator[None]:
    """Prevent `__init_subclass__` of captured classes from running, since it ran in the client."""
    hooked = [
        cls for base in bases for cls in base.__mro__ if "__init_subclass__" in vars(cls) and is_captured_class(cls)
    ]
    hooks = [vars(cls)["__init_subclass__"] for cls in hooked]
    try:
        for cls in hooked:
            type.__setattr__(cls, "__init_subclass__", classmethod(_do_nothing))
        yield
    finally:
        for cls, hook in zip(hooked, hooks, strict=True):
            type.__setattr__(cls, "__init_subclass__", hook)


def _do_nothing(owner: Any, /, *arguments: Any, **keywords: Any) -> None:
    pass


def _make_as_stated(
    meta: Any, name: str, bases: tuple[type, ...], names: dict[str, Any], keywords: dict[str, Any]
) -> type:
    """Make a class as its class statement did, so that libraries record it."""
    prepared = meta.__prepare__(name, bases, **keywords)
    for attribute, value in names.items():
        prepared[attribute] = value
    cls: type = meta(name, bases, prepared, **keywords)
    return cls


def _restore_members(cls: Any, members: Any) -> None:
    """Restore the attributes that an enum's own code set on its members."""
    for name, state in members:
        vars(cls.__members__[name]).update(dict(state))


def _impose(cls: type, attributes: Any) -> None:
    """Set the attributes that a decorator added to a class; if its metaclass makes the dataclass, those of its fields.

    The program may have set other values than the defaults with which the fields were made.
    """
    imposed = dict(attributes)
    if "__dataclass_fields__" in imposed and "__dataclass_fields__" in vars(cls):
        made = vars(cls)["__dataclass_fields__"].keys()
        imposed = {name: value for name, value in imposed.items() if name in made}
    else:
        made = [name for name, value in vars(cls).items() if isinstance(value, dataclasses.Field)]
    for name in vars(cls).keys() & {*made} - imposed.keys():
        if not isinstance(vars(cls)[name], types.MemberDescriptorType):  # of a slot
            type.__delattr__(cls, name)
    for name, value in imposed.items():
        type.__setattr__(cls, name, value)


def _register_abc(cls: Any, subclasses: Any) -> None:
    for subclass in subclasses:
        abc.ABCMeta.register(cls, subclass)


FILLERS: dict[str, Callable[..., None]] = {
    "impose": _impose,
    "register": lambda cls, kind, arguments: register(cls, kind, tuple(arguments)),
    "register_abc": _register_abc,
    "restore_members": _restore_members,
    "set_attribute": type.__setattr__,
}
"""Step name -> function that completes a class, called with the class and the step's arguments."""
