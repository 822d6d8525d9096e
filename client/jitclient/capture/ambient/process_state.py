"""State of the caller's process that a trace obeys without reading it: how numpy and `decimal` compute and print, and
which warnings are errors.

It is carried to whoever traces. What is as Python and numpy have it where nobody sets it is left out.
"""

import contextlib
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from jitclient.errors import CaptureError

State = tuple[tuple[str, Any], ...]

_ERRORS = {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}
_PRINTING = {
    "edgeitems": 3,
    "threshold": 1000,
    "floatmode": "maxprec",
    "precision": 8,
    "suppress": False,
    "linewidth": 75,
    "nanstr": "nan",
    "infstr": "inf",
    "sign": "-",
    "legacy": False,
}
_ARITHMETIC = ("prec", "rounding", "Emin", "Emax", "capitals", "clamp")


def current() -> State:
    """What of it differs in this thread; CaptureError if something of it is a function, which cannot be carried."""
    found = {
        "numpy_errors": _differing(dict(np.geterr()), _ERRORS),
        "numpy_printing": _differing(dict(np.get_printoptions()), _PRINTING),
        "decimal_context": _decimal() if "decimal" in sys.modules else (),
        "warnings": _warnings(),
    }
    return tuple((name, value) for name, value in found.items() if value)


def _differing(settings: dict[str, Any], defaults: dict[str, Any]) -> State:
    found = {name: value for name, value in settings.items() if value != defaults.get(name)}
    for name, value in found.items():
        if name not in defaults or value in ("call", "log"):
            raise CaptureError(f"numpy has a function of this process for {name}")
    return tuple(sorted(found.items()))


def _decimal() -> tuple[Any, ...]:
    import decimal

    trapped = [decimal.InvalidOperation, decimal.DivisionByZero, decimal.Overflow]
    default = decimal.Context(28, decimal.ROUND_HALF_EVEN, -999999, 999999, 1, 0, traps=trapped)
    found = _of_decimal(decimal.getcontext())
    return () if found == _of_decimal(default) else found


def _of_decimal(context: Any) -> tuple[Any, ...]:
    traps = sorted(signal.__name__ for signal, is_on in context.traps.items() if is_on)
    return *(getattr(context, name) for name in _ARITHMETIC), tuple(traps)


def _warnings() -> tuple[Any, ...]:
    """The filters of warnings, if some make errors of them: what others do, no trace notices."""
    filters = list(warnings.filters)
    if not any(action == "error" for action, *_ in filters):
        return ()
    return tuple(
        (action, _pattern(message), str(kind), _pattern(module), line)
        for action, message, kind, module, line in filters
    )


def _pattern(given: Any) -> str:
    return str(getattr(given, "pattern", given or ""))


def _decimal_as(values: tuple[Any, ...]) -> contextlib.AbstractContextManager[Any]:
    import decimal

    *arithmetic, traps = values
    options: dict[str, Any] = dict(zip(_ARITHMETIC, arithmetic, strict=True))
    return decimal.localcontext(decimal.Context(**options, traps=[getattr(decimal, name) for name in traps]))


ENTER: dict[str, Callable[[Any], contextlib.AbstractContextManager[Any]]] = {
    "decimal_context": _decimal_as,
    "numpy_errors": lambda values: np.errstate(**dict(values)),
    "numpy_printing": lambda values: np.printoptions(**dict(values)),
    "warnings": lambda values: contextlib.nullcontext(),  # of all threads, so that only the own trace obeys them
}
"""What gives a thread the state of another process, by name."""
