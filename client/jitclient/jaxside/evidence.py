"""Evidence of a trace, by which the client's own trace and the daemon's trace of one function are compared.

Two traces agree if their lowered texts and their callbacks are equal. The text contains no file names and no lines. The
name of the module and the paths of the results, which do not affect the computation, are removed from it, because the
daemon traces a function of flat leaves.

A library that iterates over a set may trace the same computation in another order. So two traces also agree if their
jaxprs have equal order-free digests, and their lowered texts the same operations. In these digests, the terms of a sum
count in any order: in plain JAX, too, the order of the terms then depends on the process's hash seed.
"""

import itertools
import re
from collections.abc import Sequence
from types import FunctionType
from typing import Any

from jitclient.capture.codec import values
from jitclient.capture.user_code.ownership import has_private_globals, is_user_function
from jitclient.core.digests import digest
from jitclient.jaxside.callbacks import callback_names, name_of_function
from jitclient.jaxside.jaxpr_digest import order_free_digest
from jitclient.wire.messages import Evidence

_MAX_TEXT = 4 << 20
"""The maximum length in characters of a text that is sent; longer texts are compared by their digests alone."""

_NOT_LOWERED = b"not lowered"

_MODULE = re.compile(r"^module @\S+", re.MULTILINE)
_RESULT_INFO = re.compile(r'jax\.result_info = "[^"]*"(, )?')
_EMPTY = re.compile(r" \{\}(?=[,)])")

_MAIN = re.compile(r"func\.func public @main\((.*)")
_RESULT = re.compile(r"\s*(%\w+)(?::\d+)? = \W?([\w.]+)")
_INPUT = re.compile(r"(%\w+): ([^\s,)]+)")
_VALUE = re.compile(r"(%\w+)(?:#\d+)?")
_NUMBERED = re.compile(r"(?<!custom_call )@\w+|(?<=index = )\d+(?= : ui64)")
"""Names of functions, and numbers of callbacks."""


def evidence_of(traced: Any, lowered: Any, ref: values.Ref) -> Evidence:
    """Return the evidence of a function that JAX traced and lowered.

    Args:
        traced: The function as traced by JAX.
        lowered: The function as lowered by JAX; None if this process cannot lower it. Such evidence differs from all
            others, so only the order-free digest decides.
        ref: Gives the position of an object in the capture, or None.
    """
    callbacks = callback_names(traced.jaxpr, ref)
    if lowered is None:
        return Evidence(_NOT_LOWERED, callbacks=callbacks)
    text = _text_of(lowered)
    found = digest("\n".join([text, *callbacks]).encode())
    return Evidence(found, text if len(text) <= _MAX_TEXT else "", callbacks)


def _text_of(lowered: Any) -> str:
    """Return the lowered text without the names of the module and the results."""
    return _EMPTY.sub("", _RESULT_INFO.sub("", _MODULE.sub("module", lowered.as_text(), count=1)))


def order_free(traced: Any, lowered: Any, ref: values.Ref) -> bytes:
    """Return the digest of a trace's jaxpr, and that of its lowered text, which do not depend on the equations' order.

    Return an empty digest if the trace cannot be compared in this way. User functions that the trace created, such as
    callbacks, count by their code. The second digest is missing if this process cannot lower the function.
    """

    def describe(value: Any) -> bytes | None:
        index = ref(value)
        if index is not None:
            return b"captured %d" % index
        is_users = type(value) is FunctionType and (is_user_function(value) or has_private_globals(value))
        return name_of_function(value, ref).encode() if is_users else None

    found = order_free_digest(traced.jaxpr, describe, sums_in_any_order=True) or b""
    return found + digest("\n".join(_operations(_text_of(lowered))).encode()) if found and lowered else found


def is_same_without_order(here: bytes, there: bytes) -> bool:
    """Return whether two traces have the same order-free digests, so far as both have them."""
    known = min(len(here), len(there))
    return known > 0 and here[:known] == there[:known]


def _operations(text: str) -> list[str]:
    """Return the operations of a lowered text, sorted; operands are named by the operations that made them.

    A rule that lowers the same jaxpr to other operations shows in them.
    """
    main = _MAIN.search(text)
    # Tokens, which order effects, come first.
    inputs = {name: kind if kind.endswith("token") else name for name, kind in _INPUT.findall(main[1] if main else "")}
    made: dict[str, str] = {}
    found = []
    for line in text.splitlines():
        if "func.func" in line:
            made = {} if _MAIN.search(line) is None else inputs.copy()
        result = _RESULT.match(line)
        operation = result[2] if result else ""
        names = {} if operation == "stablehlo.add" else made  # a term of a sum
        parts = _VALUE.split(line)
        parts[1::2] = [names.get(part, "%") for part in parts[1::2]]
        if "!stablehlo.token" in line:  # ordered effects, in any order
            parts[1::2] = sorted(parts[1::2])
        found.append(_NUMBERED.sub("", "".join(parts)))
        if result:
            made[result[1]] = operation
    return sorted(found)


def has_same_order(here: Evidence, there: Evidence) -> bool:
    """Return whether two traces are equal, in the order of their equations, too."""
    return here.digest == there.digest != _NOT_LOWERED


def difference_of_evidence(here: Evidence, there: Evidence) -> str:
    """Return a description of the first difference between two traces' evidence; empty if they agree."""
    if has_same_order(here, there):
        return ""
    if here.callbacks != there.callbacks:
        return _first_difference(here.callbacks, there.callbacks)
    if not (here.text and there.text):
        return "the programs differ"
    return _first_difference(here.text.splitlines(), there.text.splitlines())


def _first_difference(here: Sequence[str], there: Sequence[str]) -> str:
    for number, (mine, other) in enumerate(itertools.zip_longest(here, there, fillvalue="nothing"), 1):
        if mine != other:
            return f"line {number} is {mine.strip()!r:.200} here and {other.strip()!r:.200} on the daemon"
    return "the programs differ"
