"""Views of a program: its texts, and the analyses of the compiler."""

from jitclient.errors import CaptureError, ProtocolError
from jitclient.wire.messages import Inspected, Prepare
from jitserver.engine import context
from jitserver.engine.program import Program, loaded_for, text_of_capture, text_of_client

TRACED = ("jaxpr", "stablehlo")
"""The views that need another trace."""


def inspected(program: Program, what: str) -> Inspected:
    """One of the views "hlo" (or "text"), "costs" (estimates of flops, bytes, ...) and "memory" (bytes by use)."""
    match what:
        case "text" | "hlo":
            return Inspected(text=program.run.as_text() or "")
        case "costs":
            return Inspected(costs=dict(program.run.cost_analysis() or {}))
        case "memory":
            found = program.run.memory_analysis()
            names = [name for name in dir(found) if name.endswith("_in_bytes")]
            return Inspected(memory={name: int(getattr(found, name)) for name in names})
    raise ProtocolError(f"a program has no view {what!r:.40}")


def traced_again(request: Prepare, payload: bytes, what: str) -> Inspected:
    """The "jaxpr" or "stablehlo" of a program, from its capture: the function is traced again.

    Raises:
        CaptureError: it cannot be traced; the message has what the function raised.
    """
    if request.traced is not None:
        return Inspected(text_of_client(payload, what))
    lookup = request.lookup
    try:
        loaded = loaded_for(lookup, payload)
        return Inspected(text_of_capture(loaded, lookup.signature, request.name, what))
    except CaptureError:
        raise
    except BaseException as error:  # the user's function may raise anything, SystemExit included
        raise CaptureError(f"{request.name} cannot be traced again: {error!r}") from error
    finally:
        context.packages().meet_loaded()
