"""What the compiler says of a program."""

from jitclient.errors import ProtocolError
from jitclient.wire.messages import Inspected
from jitserver.engine.program import Program


def inspected(program: Program, what: str) -> Inspected:
    """One of its "text", "costs" (of its estimate: flops, bytes accessed, ...) and "memory" (bytes, by what for)."""
    match what:
        case "text":
            return Inspected(text=program.run.as_text() or "")
        case "costs":
            return Inspected(costs=dict(program.run.cost_analysis() or {}))
        case "memory":
            found = program.run.memory_analysis()
            names = [name for name in dir(found) if name.endswith("_in_bytes")]
            return Inspected(memory={name: int(getattr(found, name)) for name in names})
    raise ProtocolError(f"nothing of a program is called {what!r:.40}")
