"""Classes: installed ones by name, the user's by their definition."""

import abc
import enum
import inspect
import typing
from typing import Any

from jitclient.codec.ambient.registries import registered_with
from jitclient.codec.graph.nodes import Node, Value
from jitclient.codec.graph.walker import Walker, describes_as
from jitclient.codec.user_code.class_body import body_of
from jitclient.codec.user_code.names import home_of
from jitclient.codec.user_code.ownership import is_user_class, refuse_patched
from jitclient.codec.user_code.registry import refuse_registered, registration_of

_SILENT_HOOKS = (object, typing.Generic)
"""Installed classes whose `__init_subclass__` leaves nothing but attributes behind."""

_REPLAY_KEYWORDS = {"_pytree__is_pytree": "pytree"}
"""Attribute -> the keyword of the class statement that it remembers (flax.nnx)."""


def describe_class(walker: Walker, cls: type) -> Value:
    """A class."""
    if is_user_class(cls) and typing.is_typeddict(cls):
        return _typed_dict(walker, cls)
    if is_user_class(cls):
        return _user_class(walker, cls)
    refuse_registered(cls)
    home = home_of(cls)
    if home is None:
        return walker.by_reference(cls)
    refuse_patched(cls)
    return walker.installed(home)


@describes_as("typed_dict")
def _typed_dict(walker: Walker, node: Node, cls: Any) -> None:
    node.args = [cls.__name__, walker.pairs(cls.__annotations__), sorted(cls.__required_keys__)]


@describes_as("class")
def _user_class(walker: Walker, node: Node, cls: type) -> None:
    walker.watch.class_(cls)
    body = body_of(cls, keep_docs="docs" in walker.options)
    mode = _how_to_make(cls)
    keywords = {
        keyword: cls.__dict__[attribute]
        for attribute, keyword in _REPLAY_KEYWORDS.items()
        if attribute in cls.__dict__ and mode == "replay"
    }
    shows_name = "qualnames" in walker.options or "__dataclass_fields__" in vars(cls)
    named = {"__qualname__": cls.__qualname__} if shows_name and cls.__qualname__ != cls.__name__ else {}
    node.args = [
        mode,
        walker.value(type(cls)),
        cls.__name__,
        [walker.value(base) for base in cls.__bases__],
        walker.pairs(named | body.namespace),
        walker.pairs(keywords),
    ]
    if body.imposed:
        node.fill("impose", walker.pairs(body.imposed))
    if body.members is not None:
        node.args[0] = "restored_enum"
        members = [[name, walker.pairs(state)] for name, state in body.members.items()]
        node.fill("restore_members", members)
    virtual = _virtual_subclasses(cls)
    if virtual:
        node.fill("register_abc", [walker.value(subclass) for subclass in virtual], lenient=True)
    registration = registration_of(cls)
    if registration is not None and not (mode == "replay" and _registers_itself(cls)):
        kind, arguments = registration
        node.fill("register", kind, [walker.value(argument) for argument in arguments])


def _registers_itself(cls: type) -> bool:
    """Whether making a class registers it with JAX, by functions generated for it."""
    makers = [base for kind in (type(cls), cls) for base in inspect.getmro(kind)]
    return any(maker.__module__.startswith(_REGISTERING) for maker in makers)


_REGISTERING = ("equinox.", "flax.nnx.")


def _how_to_make(cls: type) -> str:
    """How a class is made again.

    "exact": what the class holds is all there is, so nothing of the user's needs to run;
    "replay": installed code takes part, and keeps records of its own.
    """
    if issubclass(cls, enum.Enum):
        return "enum"
    if any(not is_user_class(m) and m not in _PLAIN_METACLASSES for m in type(cls).__mro__):
        return "replay"
    for base in cls.__mro__[1:]:
        hooked = "__init_subclass__" in vars(base) and base not in _SILENT_HOOKS
        if hooked and not is_user_class(base):
            return "replay"
    return "exact"


_PLAIN_METACLASSES = (type, abc.ABCMeta, object)


def _virtual_subclasses(cls: type) -> list[type]:
    """Classes that were registered with an abstract base class, in the order of their names."""
    found = registered_with(cls) if isinstance(cls, abc.ABCMeta) else []
    return sorted(found, key=lambda subclass: (subclass.__name__, subclass.__module__))
