"""Actions at a program's first use of jitclient: a jitted function, `install()`, or a session."""

from collections.abc import Callable

_actions: list[Callable[[], None]] = []


def when_used(action: Callable[[], None]) -> None:
    """Call a function once, when the program first uses jitclient."""
    _actions.append(action)


def note() -> None:
    """Call the functions that wait for the first use."""
    while _actions:
        _actions.pop()()


def forget() -> None:
    """Call none of them: this process is not a program of its own."""
    _actions.clear()
