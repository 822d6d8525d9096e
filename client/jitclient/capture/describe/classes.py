"""Describers for classes: installed classes by name, user classes by their definition."""

import abc
import enum
import inspect
import typing
from typing import Any

from jitclient.capture.ambient.patches import registered_with
from jitclient.capture.graph.nodes import Node, Value
from jitclient.capture.graph.walker import Walker, describes_as
from jitclient.capture.user_code.class_body import body_of
from jitclient.capture.user_code.names import home_of
from jitclient.capture.user_code.ownership import is_user_class, raise_if_holds_user_code
from jitclient.capture.user_code.registry import raise_if_registered, registration_of

_IS_PYTREE = "_pytree__is_pytree"
"""Attribute in which flax.nnx stores the keyword `pytree` of a class statement."""


def describe_class(walker: Walker, cls: type) -> Value:
    """Describe a class by name if it is installed, by its definition otherwise."""
    if is_user_class(cls):
        return (_typed_dict if typing.is_typeddict(cls) else _user_class)(walker, cls)
    raise_if_registered(cls)
    home = home_of(cls)
    if home is None:
        return walker.by_reference(cls)
    raise_if_holds_user_code(cls)
    return walker.installed(home)


@describes_as("typed_dict")
def _typed_dict(walker: Walker, node: Node, cls: Any) -> None:
    node.args = [cls.__name__, walker.pairs(cls.__annotations__), sorted(cls.__required_keys__)]


@describes_as("class")
def _user_class(walker: Walker, node: Node, cls: type) -> None:
    walker.watch.class_(cls)
    mode = _how_to_make(cls)
    body = body_of(cls, keep_docs="docs" in walker.options, is_replayed=mode == "replay")
    keywords = {"pytree": vars(cls)[_IS_PYTREE]} if mode == "replay" and _IS_PYTREE in vars(cls) else {}
    # Another one than a metaclass without keywords has given it.
    if issubclass(cls, enum.Flag) and cls._boundary_ is not cls.__bases__[-1]._boundary_:  # type: ignore[attr-defined]
        keywords["boundary"] = cls._boundary_  # type: ignore[attr-defined]
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
    if body.is_restored:
        node.args[0] = "restored_enum"
    if body.members:
        node.fill("restore_members", [[name, walker.pairs(state)] for name, state in body.members.items()])
    virtual = registered_with(cls) if isinstance(cls, abc.ABCMeta) else []
    if virtual:
        in_order = sorted(virtual, key=lambda subclass: (subclass.__name__, subclass.__module__))
        node.fill("register_abc", [walker.value(subclass) for subclass in in_order], optional=True)
    registration = registration_of(cls)
    if registration is not None and not (mode == "replay" and _registers_itself(cls)):
        kind, arguments = registration
        node.fill("register", kind, [walker.value(argument) for argument in arguments])


def _registers_itself(cls: type) -> bool:
    """Return whether making a class registers it with JAX, by functions generated for it."""
    makers = (*inspect.getmro(type(cls)), *cls.__mro__)
    return any(maker.__module__.startswith(("equinox.", "flax.nnx.")) for maker in makers)


def _how_to_make(cls: type) -> str:
    """Return the mode in which a class is made again.

    - "exact": the class's namespace is complete, so no user code needs to run.
    - "replay": installed code takes part in making the class, and keeps its own records.
    - "enum": the class is an enum.
    """
    if issubclass(cls, enum.Enum):
        return "enum"
    hooked = [base for base in cls.__mro__[1:] if "__init_subclass__" in vars(base)]
    return (
        "exact"
        if all(is_user_class(k) or _only_sets_attributes(k) for k in (*type(cls).__mro__, *hooked))
        else "replay"
    )


def _only_sets_attributes(cls: type) -> bool:
    """Return whether an installed class, as a metaclass or by its `__init_subclass__`, only sets attributes."""
    return cls in (type, abc.ABCMeta, object, typing.Generic) or cls.__module__.startswith("pydantic.")
