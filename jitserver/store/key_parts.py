"""Parts of a program's key in the user's terms, read from the request that made the program and from its capture."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from jitclient.capture.codec import values
from jitclient.capture.codec.plain import Reduced, Reference
from jitclient.capture.explain.parts import CapturePart, parts_of
from jitclient.capture.manifest.places import path_of
from jitclient.capture.manifest.trees import text_of_state
from jitclient.errors import JitserverError
from jitclient.jaxside.context import DEFAULTS
from jitclient.wire.introspection import EntryInfo
from jitclient.wire.messages import Prepare, Signature, Spec
from jitclient.wire.shardings import JitShardings, Sharding
from jitserver.store.checked_files import unpacked
from jitserver.store.entry import Stored

_MAX_LENGTH = 80
_MAX_CAPTURE_BYTES = 64 << 20
"""Maximum size of a capture that is taken apart."""

_BRACKETS = {"list": "[]", "tuple": "()", "dict": "{}"}


class CachedPrograms(Protocol):
    """Programs of a cache, with their captures."""

    def infos(self, prefix: str = "") -> list[EntryInfo]: ...
    def stored(self, key: str) -> Stored | None: ...
    def capture(self, stored: Stored) -> bytes | memoryview: ...


class Compared(NamedTuple):
    """Program that is cached, or asked for, with all that its key depends on.

    Attributes:
        rows: digest of each row of its key.
        context: versions and other facts of the daemon, by label.
        request: request that made it, or that would make it.
        capture: bytes of the function's capture; empty if there are none.
    """

    rows: Mapping[str, bytes]
    context: Mapping[str, str]
    request: Prepare
    capture: bytes | memoryview = b""


def of_stored(programs: CachedPrograms, stored: Stored) -> Compared:
    """Return a program of a cache.

    Raises:
        Corrupt: the stored data is not a request.
    """
    request = unpacked(stored.request, Prepare)
    # The daemon has no capture of a function that its client traced.
    capture = b"" if request.traced is not None else programs.capture(stored)
    return Compared(stored.components.rows, stored.info.context, request, capture)


def of_capture(program: Compared, name: str) -> tuple[CapturePart, ...]:
    """Return the parts of a program's capture.

    Args:
        program: the program.
        name: the name of its function, or the one that the function is to have in a comparison.
    """
    lookup = program.request.lookup
    if not 0 < len(program.capture) <= _MAX_CAPTURE_BYTES:
        return ()
    return parts_of(bytes(program.capture), lookup.locations, dict(_named_extras(program.request)), name)


def of_inputs(program: Compared) -> Iterator[CapturePart]:
    """Yield the declared inputs of a program's function."""
    for label, text, digest in program.request.inputs:
        yield CapturePart(f"declared input {label}", digest, text)


def of_row(row: str, program: Compared) -> Iterable[CapturePart]:
    """Return the parts of a row other than that of the capture; none if the row has no parts."""
    request = program.request
    signature: Signature = request.lookup.signature
    match row:
        case "leaves":
            return [
                _part(f"argument {name}", _spec_text(spec))
                for name, spec in zip(_leaf_names(request), signature.leaves, strict=False)
            ]
        case "tree":
            return [_part("structure of the arguments", _structure_text(signature.tree), signature.tree)]
        case "statics":
            return [
                _part(f"static {name}", _value_text(message), message)
                for name, (_, message) in zip(_static_names(request), signature.statics, strict=False)
            ]
        case "donated":
            names = _leaf_names(request)
            return [_part("donated arguments", ", ".join(names[n] for n in signature.donated) or "none")]
        case "options":
            return [_part(f"option {name}", _value_text(message), message) for name, message in signature.options]
        case "shardings":
            given = signature.shardings
            return [] if given is None else [_part("keywords about devices", _placed_text(given), repr(given).encode())]
        case "settings":
            return [_part(label, text) for label, text in settings_of(signature).items()]
    return []


def settings_of(signature: Signature) -> dict[str, str]:
    """Return the settings of JAX for a program, as text."""
    given = {name: values.text_of(values.read(value)) for name, value in signature.context}
    return {**{name: repr(value) for name, value in DEFAULTS.items()}, **given}


def state_of(program: Compared, names: tuple[str, ...] = ()) -> dict[str, tuple[bytes, str]]:
    """Return the state of data in packages that a program's key has, by name: each with its text.

    For a program that is asked for, the client has sent its state of several lists; `names` selects one.
    """
    request = program.request
    sent = (request.manifest,) if request.manifest is not None else request.lookup.manifests
    found = next((one for one in sent if one.names == names), None) or next(iter(sent), None)
    if found is None or len(found.names) != len(found.state):
        return {}
    pairs = zip(found.names, found.state, strict=True)
    return {path_of(name): (state, text_of_state(state)) for name, state in pairs}


def _named_extras(request: Prepare) -> Iterator[tuple[int, str]]:
    """Yield positions and names of the values that were captured for a call."""
    signature = request.lookup.signature
    named = [
        (f"static {name}", value) for name, (_, value) in zip(_static_names(request), signature.statics, strict=False)
    ]
    named += [(f"option {name}", value) for name, value in signature.options]
    for name, message in named:
        data = values.read(message)
        if type(data) is Reference:
            yield int(data), name


def _leaf_names(request: Prepare) -> list[str]:
    """Return the names of the arguments' leaves, or their positions in a program of another user, which has none."""
    leaves = request.lookup.signature.leaves
    return list(request.names[: len(leaves)]) or [str(position) for position in range(len(leaves))]


def _static_names(request: Prepare) -> list[str]:
    signature = request.lookup.signature
    return list(request.names[len(signature.leaves) :]) or [str(where) for where, _ in signature.statics]


def _part(label: str, text: str, content: bytes | None = None) -> CapturePart:
    return CapturePart(label, text.encode() if content is None else content, text)


def _value_text(message: bytes) -> str:
    return f"{values.text_of(values.read(message)):.{_MAX_LENGTH}}"


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


def _placed_text(given: JitShardings) -> str:
    named = [("in_shardings", given.inputs), ("out_shardings", given.outputs and given.outputs.leaves)]
    texts = [f"{name}={', '.join(map(_one_text, held))}" for name, held in named if held]
    return f"{'; '.join(texts):.{_MAX_LENGTH}}"


def _one_text(sharding: Sharding | None) -> str:
    return _where(sharding).strip() or "any"


def _structure_text(encoded: bytes) -> str:
    """Return a structure as text, `((*, {'w': *}), {})`: positional arguments, then keywords."""
    try:
        text = _node_text(values.read(encoded)) if encoded else ""
    except (JitserverError, TypeError, ValueError, RecursionError):
        return ""
    return text if len(text) <= _MAX_LENGTH else f"{text[: _MAX_LENGTH - 1]}…"


def _node_text(data: Any) -> str:
    """Return a node as `jaxside.tree` encodes it: its class, its metadata and its children."""
    if data is None:
        return "*"
    if data == ():
        return "None"
    kind, meta, children, *_ = data
    texts = list(map(_node_text, children))
    name = kind.args[-1] if type(kind) is Reduced else ""
    if name == "dict":
        texts = [f"{values.text_of(key)}: {text}" for key, text in zip(meta, texts, strict=True)]
    if name in _BRACKETS:
        comma = "," if name == "tuple" and len(texts) == 1 else ""
        return f"{_BRACKETS[name][0]}{', '.join(texts)}{comma}{_BRACKETS[name][1]}"
    if name == "StaticLeaf":
        return values.text_of(meta)
    kept = f"; {values.text_of(meta)}" if meta else ""
    return f"{name or 'object'}({', '.join(texts)}{kept})"
