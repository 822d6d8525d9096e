"""Every component of a key has words: two lookups differ in words if and only if their call keys differ."""

import dataclasses
from typing import Any

import msgspec
import numpy as np
import pytest

from jitclient.wire.messages import Lookup, Signature, Spec
from jitserver.programs import keys
from jitserver.programs.keys import components_of
from jitserver.store.explain import differences

SIGNATURE = Signature(None, (Spec((2,), "float32"),), ((1, 2),), (), (), ())
LOOKUP = Lookup("a" * 32, "a" * 32, ("numpy",), SIGNATURE)

CHANGES: dict[str, dict[str, Any]] = {
    "capture": {"capture_key": "b" * 32},
    "leaves": {"leaves": (Spec((3,), "float32"),)},
    "statics": {"statics": ((1, 3),)},
    "donated": {"donated": (0,)},
    "options": {"options": (("inline", True),)},
    "settings": {"context": (("jax_enable_x64", True),)},
}


@pytest.fixture(scope="module")
def key() -> Any:
    return keys.call_key(LOOKUP)


@pytest.mark.parametrize("row", CHANGES)
def test_a_component_without_words_is_named(key: Any, row: str) -> None:
    change = CHANGES[row]
    if row == "capture":
        changed = keys.call_key(msgspec.structs.replace(LOOKUP, **change))
    else:
        changed = keys.call_key(msgspec.structs.replace(LOOKUP, signature=msgspec.structs.replace(SIGNATURE, **change)))
    assert changed.text != key.text
    assert [str(d) for d in differences(components_of(key, b""), components_of(changed, b""))] == [f"{row}: changed"]


def test_equal_keys_have_no_differences(key: Any) -> None:
    same = keys.call_key(msgspec.structs.replace(LOOKUP, function_key="c" * 32))
    assert same == key
    assert differences(components_of(key, b""), components_of(same, b"")) == ()


def test_the_daemon_describes_packages_and_the_process(key: Any) -> None:
    process = msgspec.msgpack.decode(key.rows["process"]) | {"python": "3.99.0"}
    versions = msgspec.msgpack.decode(key.rows["packages"])
    later = {
        "packages": msgspec.msgpack.encode(versions | {"numpy": "99.0"}),
        "process": msgspec.msgpack.encode(process),
    }
    packages, python = differences(
        components_of(key, b""), components_of(dataclasses.replace(key, rows={**key.rows, **later}), b"")
    )
    assert str(packages) == f"numpy: {versions['numpy']} -> 99.0"
    assert versions["numpy"].startswith(np.__version__)
    assert python.what == "python"
    assert python.new == "3.99.0"
