"""Tracebacks: with the user's lines only, and what they say of an error."""

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


def is_of_loading(error: BaseException) -> bool:
    """Whether an error comes from loading code that jitclient needs, for lack of descriptors or memory."""
    if isinstance(error, ModuleNotFoundError) or not isinstance(error, (OSError, ImportError, MemoryError)):
        return False
    at, is_ours = error.__traceback__, False
    while at is not None:
        if is_ours and at.tb_frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        is_module = at.tb_frame.f_code.co_name == "<module>"  # which is loaded for the frame before
        is_ours = at.tb_frame.f_globals.get("__name__", "").startswith("jitclient.") or (is_ours and is_module)
        at = at.tb_next
    return False
