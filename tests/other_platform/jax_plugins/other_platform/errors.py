"""Errors with a text and a status code of ours."""

import ctypes as c

from .table import Arguments, Function, Table


class _SetArguments(Arguments):
    _fields_ = [("code", c.c_int), ("message", c.c_char_p), ("message_size", c.c_size_t)]


def new_error(table: Table, text: str, code: int) -> int:
    """Return a new error of the plugin, which its receiver destroys.

    The C API has no function that makes an error, but an event can have one. It is described and destroyed by the
    plugin's own functions, because XLA calls them under its locks: code in Python would wait there for the GIL, whose
    owner may wait for such a lock.
    """
    message = text.encode()
    event = table.ask(Function.EVENT_CREATE, Arguments()).subject
    table.ask(Function.EVENT_SET, _SetArguments(subject=event, code=code, message=message, message_size=len(message)))
    error = table.call(Function.EVENT_ERROR, Arguments(subject=event))
    table.ask(Function.EVENT_DESTROY, Arguments(subject=event))
    assert error is not None
    return error
