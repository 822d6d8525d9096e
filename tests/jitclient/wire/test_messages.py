"""The messages that a daemon decodes: each list has a maximum length, so that a message costs little to serve."""

import typing
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from jitclient.wire.encoding import decoded
from jitclient.wire.messages import MAX_ITEMS, CalledBack, Lease, Manifest, Return, Run, Verb
from jitclient.wire.recording import Annotation
from jitserver.daemon.service import JitService


def requests() -> set[type]:
    """Return the messages of all verbs."""
    handlers = [getattr(JitService, f"exposed_{verb}").__wrapped__ for verb in Verb]
    of_verbs = [list(typing.get_type_hints(handler).items())[1][1] for handler in handlers]
    return {kind for kind in of_verbs if kind is not type(None)}


def unlimited(kind: Any, where: str, seen: set[type]) -> Iterator[str]:
    """Yield the places of collections without a maximum length."""
    if isinstance(kind, inspect.StructType):
        if kind.cls not in seen:
            seen.add(kind.cls)
            for field in kind.fields:
                yield from unlimited(field.type, f"{kind.cls.__name__}.{field.name}", seen)
    elif isinstance(kind, inspect.UnionType):
        for each in kind.types:
            yield from unlimited(each, where, seen)
    elif isinstance(kind, inspect.TupleType):
        for each in kind.item_types:
            yield from unlimited(each, where, seen)
    elif isinstance(kind, (inspect.VarTupleType, inspect.ListType, inspect.DictType)):
        if kind.max_length is None:
            yield where
        yield from unlimited(kind.value_type if isinstance(kind, inspect.DictType) else kind.item_type, where, seen)


def test_each_list_that_a_client_sends_has_a_maximum_length() -> None:
    kinds = {*requests(), Run, CalledBack, Lease, Return, Annotation}
    assert len(kinds) > 15
    assert not [place for kind in kinds for place in unlimited(inspect.type_info(kind), "", set())]


def test_a_list_that_is_too_long_is_not_decoded() -> None:
    state = msgspec.msgpack.encode(Manifest(("name",) * (MAX_ITEMS + 1), ()))
    with pytest.raises(msgspec.ValidationError, match="length <= 16384"):
        decoded(state, Manifest)
