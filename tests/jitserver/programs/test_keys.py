"""The call key: only equal computations have equal ones."""

import platform
import sys
from typing import Any

import msgspec
import pytest

from jitclient.core.directories import OF_VALUES
from jitclient.wire.messages import Lookup, Manifest, Signature, Spec
from jitclient.wire.shardings import JitShardings
from jitserver.programs import context
from jitserver.programs.keys import call_key

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
}


def test_each_field_of_a_signature_is_listed() -> None:
    assert CHANGES.keys() == set(Signature.__struct_fields__)


@pytest.mark.parametrize("field", CHANGES)
def test_each_field_of_a_signature_is_part_of_the_key(field: str) -> None:
    other = msgspec.structs.replace(SIGNATURE, **{field: CHANGES[field]})
    assert call_key(msgspec.structs.replace(LOOKUP, signature=other)).text != call_key(LOOKUP).text


def test_a_program_that_no_trace_of_a_client_agreed_with_is_another() -> None:
    assert call_key(msgspec.structs.replace(LOOKUP, unverified=True)).text != call_key(LOOKUP).text


def test_where_code_is_and_what_a_client_tells_of_itself_is_no_part_of_the_key() -> None:
    told = msgspec.structs.replace(LOOKUP, locations=b"elsewhere", manifests=(Manifest(("name",), (b"state",)),))
    assert call_key(told).text == call_key(LOOKUP).text


def test_each_manifest_has_a_key_of_its_own_under_one_base() -> None:
    base = call_key(LOOKUP)
    manifests = (Manifest(("one",), (b"1",)), Manifest(("one",), (b"2",)), Manifest(("one", "two"), (b"1", b"1")))
    found = [base, *map(base.under, manifests)]
    assert len({key.text for key in found}) == 4
    assert {key.base for key in found} == {base.text}


@pytest.mark.parametrize("manifest", [None, Manifest()])
def test_without_names_a_manifest_changes_no_key(manifest: Manifest | None) -> None:
    assert call_key(LOOKUP).under(manifest).text == call_key(LOOKUP).text


@pytest.mark.parametrize("name", OF_VALUES)
def test_a_setting_of_the_process_that_changes_values_is_part_of_the_context(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = context.of_process.__wrapped__()
    monkeypatch.setenv(name, "--xla_dump_to=")
    assert context.of_process.__wrapped__() != plain


@pytest.mark.parametrize(("module", "name"), [(sys, "platform"), (platform, "machine")])
def test_traces_are_for_one_system_and_architecture(module: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = context.of_process.__wrapped__()
    monkeypatch.setattr(module, name, "another" if module is sys else lambda: "another")
    assert context.of_process.__wrapped__() != plain
