"""What names the program of a captured function to the daemon."""

import dataclasses
import hashlib

import msgspec

from jitclient.calls import key_parts
from jitclient.calls.deps import Deps, Input
from jitclient.calls.specialisation import Specialisation
from jitclient.codec import values
from jitclient.codec.ambient import library_state, process_state
from jitclient.codec.capture import Capture, capture
from jitclient.errors import CaptureError
from jitclient.local_jax.context import check_carried
from jitclient.tracing import device_options
from jitclient.trees import tree
from jitclient.wire.messages import Lookup, Signature
from jitclient.wire.shardings import JitShardings


@dataclasses.dataclass(frozen=True)
class Identity:
    """What names the program of a captured function to the daemon.

    Attributes:
        captured: the function with all that its signature mentions.
        lookup: what the daemon is asked.
        inputs: the declared inputs as they were found.
        wanted: what it was made of, with the state of this process.
        order: what stands for the order of sets, where the program may depend on it.
    """

    captured: Capture
    lookup: Lookup
    inputs: tuple[Input, ...]
    wanted: Specialisation
    order: tuple[Input, ...]

    def why_here(self) -> CaptureError | None:
        """Why no daemon can trace it, though its program has a name, under which others find what is traced here."""
        if self.order:
            return CaptureError(str(self.captured.set_order))
        return CaptureError("it is given what only a trace knows: a jaxpr") if self.captured.has_opaque else None

    def digest(self) -> str:
        """A digest of what decides the program."""
        lookup = msgspec.structs.replace(self.lookup, locations=b"")
        return hashlib.blake2b(msgspec.msgpack.encode(lookup), digest_size=16).hexdigest()

    def parts(self) -> bytes:
        """What it is made of, in words."""
        return key_parts.of_captured(self.wanted, self.captured, self.inputs + self.order, self.lookup.signature)


def refuse_ambient(base: Capture, deps: Deps | None) -> None:
    """Raise if a function reads what it does not declare."""
    if base.ambient is not None and deps is None:
        raise base.ambient.with_traceback(None)


def identify(wanted: Specialisation, base: Capture) -> Identity:
    """What names the program of a captured function; `base` is the function's own capture.

    Raises:
        CaptureError: something cannot be captured, or no other process has the order that its sets have here.
    """
    refuse_ambient(base, wanted.deps)
    check_carried(wanted.context)
    wanted = dataclasses.replace(wanted, context=(*wanted.context, *process_state.current()))
    inputs = wanted.deps.now() if wanted.deps else ()
    captured = _capture_with_extras(wanted, base, inputs)
    library_state.refuse_changed(captured.packages)
    order: tuple[Input, ...] = ()
    if captured.set_order is not None:
        if captured.set_order.key is None:
            raise CaptureError(str(captured.set_order))
        order = (Input("order of sets", str(captured.set_order), None, captured.set_order.key),)
        captured = _capture_with_extras(wanted, base, inputs + order)
    signature = signature_of(wanted, captured)
    lookup = Lookup(captured.key, base.key, captured.packages, signature, captured.locations)
    return Identity(captured, lookup, inputs, wanted, order)


def _capture_with_extras(wanted: Specialisation, base: Capture, inputs: tuple[Input, ...]) -> Capture:
    found = [*tree.objects_in(wanted.structure)]
    found += device_options.objects_in(wanted.options)
    given = [value for _, value in wanted.statics] + list(wanted.options.of_program().values())
    found += [value for value in given if not values.is_self_contained(value)]
    found += [declared.extra for declared in inputs]
    extras = tuple({id(thing): thing for thing in found}.values())
    return capture(wanted.fun, extras, allow_ambient=wanted.deps is not None) if extras else base


def signature_of(wanted: Specialisation, captured: Capture | None) -> Signature:
    """What a call specialises on; where nothing was captured, a program says for itself what the rest was."""
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
    )


def _shardings(wanted: Specialisation, ref: values.Ref) -> JitShardings | None:
    found = device_options.jit_shardings(wanted.options, wanted.structure, ref)
    if found is not None and wanted.order is not None:
        raise CaptureError("its keywords place leaves of a class that has them in another order in every process")
    return found
