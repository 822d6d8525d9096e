"""Identity of a program: the inputs of its call key, and the parts of that key in the user's terms."""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from jitclient.calls.deps import Deps, Input
from jitclient.calls.specialisation import Specialisation
from jitclient.calls.where_to_trace import Facts, where_to_trace
from jitclient.capture.ambient import process_state
from jitclient.capture.codec import values
from jitclient.capture.dump import Capture
from jitclient.capture.explain.parts import parts_of
from jitclient.capture.manifest import state_digest, state_of
from jitclient.core.digests import digest
from jitclient.errors import CaptureError
from jitclient.jaxside import device_options, tree
from jitclient.jaxside.context import DEFAULTS, uncarried
from jitclient.jaxside.naming import argument_name, shown
from jitclient.wire.explaining import Explain, Explained, KeyPart, encode_parts
from jitclient.wire.messages import Lookup, Manifest, Signature, Spec, Verb
from jitclient.wire.shardings import JitShardings, Sharding

_MAX_LENGTH = 80


@dataclasses.dataclass(frozen=True)
class Identity:
    """Identity of a captured function's program, for the daemon."""

    # Of the function and of all objects that its signature refers to.
    captured: Capture
    lookup: Lookup
    inputs: tuple[Input, ...]  # declared inputs
    wanted: Specialisation  # with the state of this process in its context
    # Stands for the iteration order of sets, if the program may depend on it.
    order: tuple[Input, ...]

    def parts(self) -> bytes:
        """Return the encoded parts of the key, for people."""
        captured, inputs = self.captured, self.inputs + self.order
        taken = parts_of(captured.payload, captured.locations, dict(self._named_extras()))
        texts = {_input_label(found): found.text for found in inputs if found.text is not None}
        parts = [KeyPart("capture", p.label, p.digest, texts.get(p.label, p.text), p.where) for p in taken]
        return encode_parts([*parts, *_parts_of_signature(self.wanted, self.lookup.signature)])

    def _named_extras(self) -> Iterator[tuple[int, str]]:
        """Yield positions and names of the values that were captured for this call."""
        wanted = self.wanted
        named = [(f"static {_static_name(wanted, where)}", value) for where, value in wanted.statics]
        named += [(f"option {name}", value) for name, value in wanted.options.of_program().items()]
        named += [(_input_label(found), found.extra) for found in self.inputs + self.order]
        for name, value in named:
            index = self.captured.index_of(value)
            if index is not None:
                yield index, name


def raise_if_ambient(captured: Capture, deps: Deps | None) -> None:
    """Raise if a function reads undeclared inputs.

    Raises:
        AmbientInput: the function reads an input that is not declared.
    """
    if captured.ambient is not None and deps is None:
        raise captured.ambient.with_traceback(None)


def identify(wanted: Specialisation, capture: Callable[[tuple[Any, ...]], Capture]) -> Identity:
    """Identify the program of a function; `capture` captures the function with extras.

    Raises:
        CaptureError: the program has no key that other processes can compute.
    """
    inputs = wanted.deps.now() if wanted.deps else ()
    captured = capture(_extras(wanted, inputs))
    raise_if_ambient(captured, wanted.deps)
    where_to_trace(Facts(setting=uncarried(wanted.context))).raise_if_here()
    wanted = dataclasses.replace(wanted, context=(*wanted.context, *process_state.current()))
    order: tuple[Input, ...] = ()
    if captured.set_order is not None:
        if captured.set_order.key is None:
            raise CaptureError(str(captured.set_order))
        order = (Input("order of sets", str(captured.set_order), None, captured.set_order.key),)
    signature = signature_of(wanted, captured)
    lookup = Lookup(captured.key, captured.function_key, captured.packages, signature, captured.locations)
    return Identity(captured, lookup, inputs, wanted, order)


def _extras(wanted: Specialisation, inputs: tuple[Input, ...]) -> tuple[Any, ...]:
    """Return the objects that a signature refers to, and the declared inputs."""
    found = [*tree.objects_in(wanted.structure)]
    found += device_options.objects_in(wanted.options)
    given = [value for _, value in wanted.statics] + list(wanted.options.of_program().values())
    found += [value for value in given if not values.is_self_contained(value)]
    found += [declared.extra for declared in inputs]
    return tuple({id(thing): thing for thing in found}.values())


def signature_of(wanted: Specialisation, captured: Capture | None) -> Signature:
    """Return the signature of a call; without a capture, that of a traced program, whose text has the rest."""
    ref = captured.index_of if captured is not None else values.no_ref
    statics = wanted.statics if captured is not None else ()
    options = sorted(wanted.options.of_program().items())
    return Signature(
        tree=tree.encode(wanted.structure, ref) if captured is not None else tree.UNKNOWN,
        leaves=wanted.specs_sent,
        statics=tuple((where, values.encode(value, ref)) for where, value in statics),
        donated=wanted.donated_sent,
        options=tuple((name, values.encode(value, ref)) for name, value in options),
        context=tuple((name, values.encode(value)) for name, value in wanted.context),
        shardings=_shardings(wanted, ref),
    )


def _shardings(wanted: Specialisation, ref: values.Ref) -> JitShardings | None:
    found = device_options.jit_shardings(wanted.options, wanted.structure, ref)
    if found is not None and wanted.order is not None:
        raise CaptureError("in_shardings and out_shardings apply to a class whose leaf order differs between processes")
    return found


def manifests_of(lists: Sequence[tuple[str, ...]]) -> tuple[Manifest, ...]:
    """Return the state of this process for lists of names."""
    known = {name: value for names in lists for name, value in zip(names, state_of(names), strict=True)}
    return tuple(Manifest(names, state_digest(names, [known[name] for name in names])) for names in lists)


def explained(ask: Callable[[Verb, Explain, type[Explained]], Explained], question: Explain) -> Explained:
    """Ask the daemon how a program differs from the nearest one."""
    answer = ask(Verb.EXPLAIN, question, Explained)
    if answer.names:
        question.lookup = msgspec.structs.replace(question.lookup, manifests=manifests_of(answer.names))
        answer = ask(Verb.EXPLAIN, question, Explained)
    return answer


# ---- parts of the key, for people


def parts_of_traced(wanted: Specialisation, key: str, signature: Signature) -> bytes:
    """Return the encoded parts for a function traced in this process; `key` is the digest of the program."""
    program = KeyPart("capture", "program traced in the client", key.encode(), "")
    return encode_parts([program, *_parts_of_signature(wanted, signature)])


def _input_label(found: Input) -> str:
    return f"declared input {found.label}"


def _parts_of_signature(wanted: Specialisation, signature: Signature) -> Iterator[KeyPart]:
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
    for name, setting in {**DEFAULTS, **dict(wanted.context)}.items():
        yield _part("settings", name, repr(setting) if isinstance(setting, str) else str(setting))


def _part(row: str, label: str, text: str, value: Any = None) -> KeyPart:
    data = text.encode() if value is None else msgspec.msgpack.encode(value)
    return KeyPart(row, label, digest(data, 8), text)


def _value_text(value: Any) -> str:
    return f"{value!r:.{_MAX_LENGTH}}" if values.is_self_contained(value) else type(value).__qualname__


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
    return f"{', '.join(f'{name}={value}' for name, value in given.items()):.{_MAX_LENGTH}}"


def _structure_text(structure: tree.Structure) -> str:
    """Return a structure as text, `((*, {'w': *}), {})`: positional arguments, then keywords."""
    text = shown(structure, itertools.repeat("*"))
    return text if len(text) <= _MAX_LENGTH else f"{text[: _MAX_LENGTH - 1]}…"
