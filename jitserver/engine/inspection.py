"""What the compiler says of a program, and what it was before."""

from jitclient.errors import CaptureError, ProtocolError
from jitclient.wire.messages import Inspected, Prepare
from jitserver.engine import context
from jitserver.engine.program import Program, loaded_for, text_of_capture, text_of_client

TRACED = ("jaxpr", "stablehlo")
"""What no executable holds."""


def inspected(program: Program, what: str) -> Inspected:
    """One of its "hlo" (or "text"), "costs" (of its estimate: flops, bytes accessed, ...) and "memory" (bytes, by what
    for).
    """
    match what:
        case "text" | "hlo":
            return Inspected(text=program.run.as_text() or "")
        case "costs":
            return Inspected(costs=dict(program.run.cost_analysis() or {}))
        case "memory":
            found = program.run.memory_analysis()
            names = [name for name in dir(found) if name.endswith("_in_bytes")]
            return Inspected(memory={name: int(getattr(found, name)) for name in names})
    raise ProtocolError(f"nothing of a program is called {what!r:.40}")


def traced_again(request: Prepare, payload: bytes, what: str) -> Inspected:
    """The "jaxpr" or "stablehlo" of a program, out of what it was made of: its function is traced once more.

    Raises:
        CaptureError: that cannot be done; what the function raised is told.
    """
    if request.traced is not None:
        return Inspected(text_of_client(payload, what))
    lookup = request.lookup
    try:
        loaded = loaded_for(lookup, payload)
        return Inspected(text_of_capture(loaded, lookup.signature, request.name, what))
    except CaptureError:
        raise
    except BaseException as error:  # it is the user's function that raises, SystemExit included
        raise CaptureError(f"{request.name} cannot be traced once more: {error!r}") from error
    finally:
        context.packages().meet_loaded()
