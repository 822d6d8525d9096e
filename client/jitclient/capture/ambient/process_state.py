"""Process state that affects a trace although the trace does not read it.

The state consists of numpy's and `decimal`'s settings for arithmetic and printing, and the warnings that are errors.
The client sends it to the process that traces. Settings at their defaults are left out.
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
    """Return this thread's settings that differ from the defaults.

    Raises:
        CaptureError: a setting of numpy is a function of this process, which cannot be sent.
    """
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
            raise CaptureError(f"numpy's setting {name} is a function, which cannot be sent")
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
    """Return the warning filters if some turn warnings into errors; otherwise empty.

    Filters with other actions do not affect a trace.
    """
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
    # Warning filters apply to all threads, so only the caller's own trace can obey them.
    "warnings": lambda values: contextlib.nullcontext(),
}
"""Setting name -> function that returns a context manager which applies the given values to this thread."""
