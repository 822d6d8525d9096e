"""Identity of a program: the inputs of its call key, and the request that makes the program."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from jitclient.calls.deps import Deps, Input
from jitclient.calls.specialisation import Specialisation
from jitclient.calls.where_to_trace import Facts, where_to_trace
from jitclient.capture.ambient import process_state
from jitclient.capture.codec import values
from jitclient.capture.dump import Capture
from jitclient.capture.manifest import state_of
from jitclient.errors import CaptureError
from jitclient.jaxside import device_options, tree
from jitclient.jaxside.context import uncarried
from jitclient.jaxside.naming import argument_name
from jitclient.wire.explaining import Explain, Explained
from jitclient.wire.messages import UPLOAD_BYTES, Lookup, Manifest, Prepare, Signature, TracedProgram, Verb
from jitclient.wire.shardings import JitShardings


@dataclasses.dataclass(frozen=True)
class Identity:
    """Identity of a captured function's program, for the daemon."""

    # Of the function and of all objects that its signature refers to.
    captured: Capture
    lookup: Lookup
    inputs: tuple[Input, ...]  # declared inputs
    wanted: Specialisation  # with the state of this process in its context
    order: str  # how the program depends on the iteration order of sets; empty if it does not

    def request(self, lookup: Lookup, traced: TracedProgram | None = None, manifest: Manifest | None = None) -> Prepare:
        """Return the request to make the program."""
        return request_of(self.wanted, lookup, traced, manifest, self.inputs)


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
    order = ""
    if captured.set_order is not None:
        if captured.set_order.key is None:
            raise CaptureError(str(captured.set_order))
        order = str(captured.set_order)
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
    return tuple(Manifest(names, tuple([known[name] for name in names])) for names in lists)


def explained(
    ask: Callable[[Verb, Explain, type[Explained]], Explained], request: Prepare, captured: Capture | None
) -> Explained:
    """Ask the daemon how a program differs from the nearest one."""
    capture = b"" if captured is None or len(captured.payload) > UPLOAD_BYTES else captured.payload
    question = Explain(request, capture)
    answer = ask(Verb.EXPLAIN, question, Explained)
    if answer.names:
        lookup = msgspec.structs.replace(question.request.lookup, manifests=manifests_of(answer.names))
        question = Explain(msgspec.structs.replace(question.request, lookup=lookup), question.capture)
        answer = ask(Verb.EXPLAIN, question, Explained)
    return answer


def request_of(
    wanted: Specialisation,
    lookup: Lookup,
    traced: TracedProgram | None = None,
    manifest: Manifest | None = None,
    inputs: tuple[Input, ...] = (),
) -> Prepare:
    """Return the request to make a program, with its description for people."""
    names = [*wanted.names_sent, *(_static_name(wanted, where) for where, _ in wanted.statics)]
    described = tuple(found.described() for found in inputs)
    return Prepare(lookup, wanted.name, wanted.where, traced, tuple(names), described, manifest)


def _static_name(wanted: Specialisation, where: int | str) -> str:
    return where if isinstance(where, str) else argument_name(wanted.fun, where)
