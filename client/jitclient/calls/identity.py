"""The identity of a captured function's program: what its call key is computed from."""

import dataclasses

import msgspec

from jitclient.calls import key_parts
from jitclient.calls.deps import Deps, Input
from jitclient.calls.specialisation import Specialisation
from jitclient.codec import values
from jitclient.codec.ambient import library_state, process_state
from jitclient.codec.capture import Capture, capture
from jitclient.digests import digest
from jitclient.errors import CaptureError
from jitclient.local_jax.context import check_carried
from jitclient.tracing import device_options
from jitclient.trees import tree
from jitclient.wire.messages import Lookup, Signature
from jitclient.wire.shardings import JitShardings


@dataclasses.dataclass(frozen=True)
class Identity:
    """What identifies the program of a captured function to the daemon."""

    captured: Capture  # of the function and of all that its signature refers to
    lookup: Lookup
    inputs: tuple[Input, ...]  # the declared ones
    wanted: Specialisation  # with the state of this process in its context
    order: tuple[Input, ...]  # stands for the iteration order of sets, if the program may depend on it

    def why_here(self) -> CaptureError | None:
        """Why it must be traced here though its program has a key, under which others find it."""
        if self.order:
            return CaptureError(str(self.captured.set_order))
        return CaptureError("it takes a jaxpr, which only a trace can have") if self.captured.has_opaque else None

    def digest(self) -> str:
        """A digest of the lookup, without the locations of code."""
        lookup = msgspec.structs.replace(self.lookup, locations=b"")
        return digest(msgspec.msgpack.encode(lookup)).hex()

    def parts(self) -> bytes:
        """The encoded parts of the key, for people."""
        return key_parts.of_captured(self.wanted, self.captured, self.inputs + self.order, self.lookup.signature)


def refuse_ambient(base: Capture, deps: Deps | None) -> None:
    """Raise if a function reads undeclared inputs."""
    if base.ambient is not None and deps is None:
        raise base.ambient.with_traceback(None)


def identify(wanted: Specialisation, base: Capture) -> Identity:
    """Identify the program of a captured function; `base` is the capture of the function alone."""
    refuse_ambient(base, wanted.deps)
    check_carried(wanted.context)
    wanted = dataclasses.replace(wanted, context=(*wanted.context, *process_state.current()))
    inputs = wanted.deps.now() if wanted.deps else ()
    captured = _capture_with_extras(wanted, base, inputs)
    state = library_state.changed(captured.packages)
    if state:
        captured = _capture_with_extras(wanted, base, inputs, state)
    order: tuple[Input, ...] = ()
    if captured.set_order is not None:
        if captured.set_order.key is None:
            raise CaptureError(str(captured.set_order))
        order = (Input("order of sets", str(captured.set_order), None, captured.set_order.key),)
        captured = _capture_with_extras(wanted, base, inputs + order, state)
    signature = signature_of(wanted, captured, state)
    lookup = Lookup(captured.key, base.key, captured.packages, signature, captured.locations)
    return Identity(captured, lookup, inputs, wanted, order)


def _capture_with_extras(
    wanted: Specialisation, base: Capture, inputs: tuple[Input, ...], state: library_state.State = ()
) -> Capture:
    found = [*tree.objects_in(wanted.structure)]
    found += device_options.objects_in(wanted.options)
    given = [value for _, value in wanted.statics] + list(wanted.options.of_program().values())
    given += [item for _, _, value in state if isinstance(value, tuple) for item in value]
    found += [value for value in given if not values.is_self_contained(value)]
    found += [declared.extra for declared in inputs]
    extras = tuple({id(thing): thing for thing in found}.values())
    return capture(wanted.fun, extras, allow_ambient=wanted.deps is not None) if extras else base


def signature_of(wanted: Specialisation, captured: Capture | None, state: library_state.State = ()) -> Signature:
    """The signature of a call; without a capture, that of a traced program, whose text has the rest."""
    ref = captured.index_of if captured is not None else values.nowhere
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
        libraries=tuple((module, path, values.encode(value, ref)) for module, path, value in state),
    )


def _shardings(wanted: Specialisation, ref: values.Ref) -> JitShardings | None:
    found = device_options.jit_shardings(wanted.options, wanted.structure, ref)
    if found is not None and wanted.order is not None:
        raise CaptureError("its keywords place leaves of a class whose order differs between processes")
    return found
