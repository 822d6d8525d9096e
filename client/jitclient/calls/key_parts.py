"""The parts of a call key, in the user's terms."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from jitclient.calls.deps import Input
from jitclient.calls.specialisation import Specialisation
from jitclient.codec import values
from jitclient.codec.capture import Capture
from jitclient.codec.explain.parts import parts_of
from jitclient.digests import digest
from jitclient.local_jax.context import DEFAULTS
from jitclient.trees import tree
from jitclient.trees.naming import argument_name, shown
from jitclient.wire.explaining import KeyPart, encode_parts
from jitclient.wire.messages import Signature, Spec
from jitclient.wire.shardings import Sharding

_LONGEST = 80


def of_captured(wanted: Specialisation, captured: Capture, inputs: Sequence[Input], signature: Signature) -> bytes:
    """The encoded parts for a captured function; `inputs` are the declared ones."""
    extras = dict(_extras(wanted, captured, inputs))
    taken = parts_of(captured.payload, captured.locations, extras)
    texts = {_input_label(found): found.text for found in inputs if found.text is not None}
    parts = [KeyPart("capture", p.label, p.digest, texts.get(p.label, p.text), p.where) for p in taken]
    return encode_parts([*parts, *_of_signature(wanted, signature)])


def of_traced(wanted: Specialisation, key: str, signature: Signature) -> bytes:
    """The encoded parts for a function that was traced in this process; `key` is the digest of the program."""
    program = KeyPart("capture", "program traced in the client", key.encode(), "")
    return encode_parts([program, *_of_signature(wanted, signature)])


def _extras(wanted: Specialisation, captured: Capture, inputs: Sequence[Input]) -> Iterator[tuple[int, str]]:
    """Positions and names of the values that were captured for this call."""
    named = [(f"static {_static_name(wanted, where)}", value) for where, value in wanted.statics]
    named += [(f"option {name}", value) for name, value in wanted.options.of_program().items()]
    named += [(_input_label(found), found.extra) for found in inputs]
    for name, value in named:
        index = captured.index_of(value)
        if index is not None:
            yield index, name


def _input_label(found: Input) -> str:
    return f"declared input {found.label}"


def _of_signature(wanted: Specialisation, signature: Signature) -> Iterator[KeyPart]:
    names = list(tree.as_sent(wanted.names, wanted.order))
    for name, spec in zip(names, signature.leaves, strict=True):
        yield _part("leaves", f"argument {name}", _spec_text(spec))
    yield _part("tree", "structure of the arguments", _structure_text(wanted.structure), signature.tree)
    for (where, value), (_, message) in zip(wanted.statics, signature.statics, strict=False):
        yield _part("statics", f"static {_static_name(wanted, where)}", _value_text(value), message)
    donated = ", ".join(names[position] for position in signature.donated)
    yield _part("donated", "donated arguments", donated or "none")
    options = wanted.options.of_program()
    for name, message in signature.options:
        yield _part("options", f"option {name}", _value_text(options[name]), message)
    if signature.shardings is not None:
        yield _part("shardings", "keywords about devices", _placed_text(wanted), signature.shardings)
    for module, path, message in signature.libraries:
        yield _part("libraries", f"{module}.{path}", "as the program has set it", message)
    for name, setting in {**DEFAULTS, **dict(wanted.context)}.items():
        yield _part("settings", name, repr(setting) if isinstance(setting, str) else str(setting))


def _part(row: str, label: str, text: str, value: Any = None) -> KeyPart:
    data = text.encode() if value is None else msgspec.msgpack.encode(value)
    return KeyPart(row, label, digest(data, 8), text)


def _value_text(value: Any) -> str:
    return f"{value!r:.{_LONGEST}}" if values.is_self_contained(value) else type(value).__qualname__


def _static_name(wanted: Specialisation, where: int | str) -> str:
    return where if isinstance(where, str) else argument_name(wanted.fun, where)


def _spec_text(spec: Spec) -> str:
    weak = ", weakly typed" if spec.weak_type else ""
    return f"{spec.dtype}[{','.join(map(str, spec.shape))}]{weak}{_where(spec.sharding)}"


def _where(sharding: Sharding | None) -> str:
    if sharding is None or sharding.mesh is None:
        return ""
    if not sharding.mesh.axes:
        return f" on device {sharding.mesh.devices[0]}"
    axes = ", ".join(f"{name}={size}" for name, size in sharding.mesh.axes)
    return f" over {sharding.spec} of {axes}"


def _placed_text(wanted: Specialisation) -> str:
    given = wanted.options.about_devices()
    return f"{', '.join(f'{name}={value}' for name, value in given.items()):.{_LONGEST}}"


def _structure_text(structure: tree.Structure) -> str:
    """`((*, {'w': *}), {})`: positional arguments, then keywords."""
    text = shown(structure, itertools.repeat("*"))
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
