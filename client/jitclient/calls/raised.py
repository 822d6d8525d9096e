"""Exceptions of the user's function during its trace in this process, on their way to the user."""

from collections.abc import Callable
from typing import NoReturn, TypeVar

_T = TypeVar("_T")


class Raised(BaseException):
    """Exception of the user's function during its trace, on its way to the user.

    Not an `Exception`, so that jitserver's own `except` clauses do not handle it: `error` may be of any class,
    including jitserver's classes.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error

    def raise_error(self) -> NoReturn:
        """Raise the error itself, with its original context."""
        error, context = self.error, self.error.__context__
        try:
            raise error
        finally:
            error.__context__ = context
            # The traceback refers to this frame.
            del self, error, context


def unwrapped(call: Callable[[], _T]) -> _T:
    """Return the result of a call, or raise the exception that the user's function raised in it."""
    try:
        return call()
    except Raised as raised:
        raised.raise_error()
