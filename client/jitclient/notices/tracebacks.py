"""Tracebacks with the user's lines only."""

from types import TracebackType


def without_machinery(tb: TracebackType | None) -> TracebackType | None:
    """A traceback without jitserver's frames, if it has others."""
    entries = []
    at = tb
    while at is not None:
        if not at.tb_frame.f_globals.get("__name__", "").startswith("jitclient."):
            entries.append(at)
        at = at.tb_next
    rest: TracebackType | None = None
    for entry in reversed(entries):
        rest = TracebackType(rest, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return rest or tb
