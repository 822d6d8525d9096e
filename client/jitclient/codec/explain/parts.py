"""What a capture is made of, in words that its user knows, so that two captures can be compared.

A capture is taken apart into labelled parts: `code of step`, `global LR`, `helper um.scale: code`, `closure k of step`.
References between parts are by label, so that an edit shows in the part where it was made, and in no other. Parts are
read from the bytes of a capture; whoever needs none pays nothing.
"""

from collections.abc import Mapping
from typing import Any

from jitclient.codec.explain.drafts import Drafts, Part, inside
from jitclient.codec.explain.texts import place_of
from jitclient.codec.plain import Reference
from jitclient.codec.steps.format import Item, read
from jitclient.codec.unpickler import from_bytes, references


def parts_of(payload: bytes, locations: bytes = b"", extras: Mapping[int, str] | None = None) -> tuple[Part, ...]:
    """Takes a capture apart.

    Args:
        payload: the bytes of the capture.
        locations: where its code is, and what its modules and variables are called.
        extras: names for the values that were captured with the function, by position.

    Example:
        >>> [part.label for part in parts_of(made.payload, made.locations)]
        ['code of step', 'global LR', 'helper um.scale: code', 'global um.scale']
    """
    reading = read(payload, locations)
    drafts = Drafts(reading)
    drafts.slot("the function", reading.root)
    for position, extra in enumerate(reading.extras):
        drafts.slot((extras or {}).get(position, f"value {position} of the call"), extra)
    for number, item, label in drafts.claimed():
        _take(drafts, number, item, label)
        for needed in references(item.needs):
            drafts.claim(needed, label)
    return drafts.finished()


def _take(drafts: Drafts, number: int, item: Item, label: str) -> None:
    match item.op:
        case "bind" | "patch":
            drafts.slot(label, item.args[-1])
        case "cell":
            for _, content in item.fills:
                drafts.slot(label, content)
        case "class":
            _take_class(drafts, item, label)
        case "function":
            _take_function(drafts, drafts.texts.name(number), item, label)
        case "method":
            function, owner = item.args
            drafts.add(label, function)
            drafts.slot(f"self of {label}", owner)
        case "namespace" | "whole":
            pass  # what is bound in it
        case "partial":
            _take_partial(drafts, item, label)
        case "source":
            _take_source(drafts, item, label)
        case _:
            _take_anything(drafts, number, item, label)


def _take_function(drafts: Drafts, name: str, item: Item, label: str) -> None:
    code, home, own_name, closure, rebinds = item.args
    arguments, free = drafts.texts.argument_names(item)
    for cell, variable in zip(closure, free, strict=False):
        drafts.claim(cell, f"closure {variable} of {name}")
    drafts.draft(label).where = place_of(item.places)
    drafts.add(label, code, home, own_name, closure, rebinds)
    for op, *args in item.fills:
        if op == "defaults":
            defaults = args[0]
            for variable, value in zip(arguments[len(arguments) - len(defaults) :], defaults, strict=True):
                drafts.slot(f"default {variable} of {name}", value)
        elif op == "kwdefaults":
            drafts.pairs(args[0], lambda key: f"default {key} of {name}")
        elif op == "attributes":
            drafts.pairs(args[0], lambda key: f"attribute {key} of {name}")
        else:
            drafts.add(f"{op} of {name}", args)


def _take_class(drafts: Drafts, item: Item, label: str) -> None:
    mode, metaclass, name, bases, attributes, keywords = item.args
    drafts.add(label, mode, metaclass, name, bases, keywords)
    _take_attributes(drafts, attributes, label)
    for op, *args in item.fills:
        if op in ("set_attribute", "impose"):
            _take_attributes(drafts, [args] if op == "set_attribute" else args[0], label)
        else:
            drafts.add(label, op, args)


def _take_attributes(drafts: Drafts, attributes: list[Any], label: str) -> None:
    for name, value in attributes:
        if type(value) is Reference and drafts.items[value].op == "function":
            drafts.claim(value, f"{label}: method {name}")
            drafts.add(label, name, value)
        else:
            drafts.add(label, name)
            drafts.slot(f"{label}: attribute {name}", value)


def _take_source(drafts: Drafts, item: Item, label: str) -> None:
    """The body of a module, with the functions that it defines told apart."""
    name, is_package, code, home, gone = item.args
    body = from_bytes(drafts.items[code].args[0])
    nested = 1  # places are in the order of the code objects, those nested in nested ones included
    for n, constant in enumerate(body[_CONSTANTS]):
        if type(constant) is list:
            helper = f"helper {name}.{constant[0][_NAME]}: code"
            drafts.add(helper, constant)
            drafts.draft(helper).where = place_of(item.places, nested)
            body[_CONSTANTS][n] = ("code", helper)
            nested += _count(constant[0])
    drafts.draft(label).where = place_of(item.places)
    drafts.add(label, name, is_package, home, *gone)
    drafts.draft(label).content.append(body)


_CONSTANTS, _NAME = 7, 10  # where the form of a code object keeps them


def _count(body: list[Any]) -> int:
    return 1 + sum(_count(constant[0]) for constant in body[_CONSTANTS] if type(constant) is list)


def _take_partial(drafts: Drafts, item: Item, label: str) -> None:
    kind, function, arguments, keywords = item.args
    drafts.add(label, kind, function, len(arguments))
    for position, argument in enumerate(arguments):
        drafts.slot(f"{label}: argument {position}", argument)
    drafts.pairs(keywords, lambda key: f"{label}: argument {key}")
    drafts.add(label, item.fills)


def _take_anything(drafts: Drafts, number: int, item: Item, label: str) -> None:
    split = drafts.is_split(number, item, label)
    drafts.add(label, item.op, item.args)
    for op, *args in item.fills:
        if split and op in ("update", "set_items"):
            drafts.add(label, [key for key, _ in args[0]])
            drafts.pairs(args[0], lambda key: inside(label, f"[{drafts.texts.of(key)}]"))
        elif split and op == "state":
            drafts.add(label, *[[key for key, _ in pairs] for pairs in args])
            drafts.pairs([*args[0], *args[1]], lambda key: inside(label, f".{key}"))
        elif split and op in ("extend", "append"):
            drafts.add(label, len(args[0]))
            for position, value in enumerate(args[0]):
                drafts.slot(inside(label, f"[{position}]"), value)
        else:
            drafts.add(label, op, args)
