"""The call key: only equal computations have equal ones."""

import msgspec
import pytest

from jitclient.wire.messages import Lookup, Signature, Spec
from jitclient.wire.shardings import JitShardings
from jitserver.engine.keys import call_key

SIGNATURE = Signature(b"", (), (), (), (), ())
LOOKUP = Lookup("capture", "function", (), SIGNATURE)
CHANGES = {
    "tree": b"another",
    "leaves": (Spec((2,), "float32"),),
    "statics": ((0, b"value"),),
    "donated": (0,),
    "options": (("inline", b"value"),),
    "context": (("jax_enable_x64", b"value"),),
    "shardings": JitShardings(),
    "libraries": (("flax.configurations", "config", b"value"),),
}


def test_each_field_of_a_signature_is_listed() -> None:
    assert CHANGES.keys() == set(Signature.__struct_fields__)


@pytest.mark.parametrize("field", CHANGES)
def test_each_field_of_a_signature_is_part_of_the_key(field: str) -> None:
    other = msgspec.structs.replace(SIGNATURE, **{field: CHANGES[field]})
    assert call_key(msgspec.structs.replace(LOOKUP, signature=other)).text != call_key(LOOKUP).text
