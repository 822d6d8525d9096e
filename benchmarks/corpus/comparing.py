"""Whether a run did what the plain run did: the same words, numbers that are close, the same arrays.

What two runs of plain JAX do not agree on either is masked in what they print: times, speeds, addresses of objects.
"""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

RELATIVE = 1e-4
"""How far floats may be apart, in proportion; or one unit of the last digit that is printed."""
_SMALL = 1e-5  # of the greatest element of an array: so far may the others be apart

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_MASKED = re.compile(
    rf"\b0x[0-9a-f]+\b|\b\d+:\d\d(?::\d\d)?\b"
    rf"|{_NUMBER} ?(?:s|ms|us|sec|secs|seconds|min|minutes|it/s)\b"
    rf"|(?<=time: ){_NUMBER}|(?<=time=){_NUMBER}|(?<=SPS: ){_NUMBER}"
)
_TOKEN = re.compile(rf"{_NUMBER}|[^\W\d]+|\S")


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The printed text of a run, and the arrays that it left, by name."""

    printed: str
    arrays: Mapping[str, Any]


def differences(plain: Outcome, other: Outcome) -> list[str]:
    """Return the differences in words; empty if there are none."""
    return [*_in_print(plain.printed, other.printed), *_in_arrays(plain.arrays, other.arrays)]


def is_identical(plain: Outcome, other: Outcome) -> bool:
    """Whether what is not masked is the same, bit for bit."""
    if _tokens(plain.printed) != _tokens(other.printed) or plain.arrays.keys() != other.arrays.keys():
        return False
    pairs = [(array, other.arrays[name]) for name, array in plain.arrays.items()]
    return all(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes() for a, b in pairs)


def _in_print(plain: str, other: str) -> list[str]:
    expected, got = (_tokens(text) for text in (plain, other))
    for number, (a, b) in enumerate(zip(expected, got, strict=False)):
        if a != b and not _close(a, b):
            before = " ".join(expected[max(0, number - 6) : number])
            return [f"printed {b} for {a}, after: {before}"]
    return [] if len(expected) == len(got) else [f"printed {len(got)} words, not {len(expected)}"]


def _tokens(text: str) -> list[str]:
    return _TOKEN.findall(_MASKED.sub("~", text))


def _close(a: str, b: str) -> bool:
    try:
        x, y = float(a), float(b)
    except ValueError:
        return False
    if re.fullmatch(r"[-+]?\d+", a) and re.fullmatch(r"[-+]?\d+", b):
        return False  # integers that differ
    return abs(x - y) <= max(RELATIVE * abs(x), 1.01 * _last_unit(a), 1.01 * _last_unit(b))


def _last_unit(number: str) -> float:
    digits, _, exponent = number.lower().partition("e")
    return float(10.0 ** (int(exponent or 0) - len(digits.partition(".")[2])))


def _in_arrays(plain: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    missing = [f"{name} is missing" for name in plain.keys() - other.keys()]
    missing += [f"{name} is not there with plain JAX" for name in other.keys() - plain.keys()]
    pairs = [(name, plain[name], other[name]) for name in plain if name in other]
    return sorted(missing) + [f"{name}: {why}" for name, a, b in pairs if (why := _unlike(a, b))]


def _unlike(a: Any, b: Any) -> str:
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        return f"{b.dtype}{list(b.shape)} for {a.dtype}{list(a.shape)}"
    if a.dtype.kind not in "fc":
        return "" if np.array_equal(a, b) else "other values"
    greatest = np.max(np.abs(a), initial=0.0, where=np.isfinite(a))
    if np.allclose(b, a, rtol=RELATIVE, atol=_SMALL * greatest, equal_nan=True):
        return ""
    with np.errstate(all="ignore"):
        return f"up to {np.nanmax(np.abs(a - b)):.2g} apart, of {greatest:.2g}"
