"""Evidence of a trace, by which the client's own trace and the daemon's trace of one function are compared.

Two traces agree if their lowered texts and their callbacks are equal. The text contains no file names and no lines. The
name of the module and the paths of the results, which do not affect the computation, are removed from it, because the
daemon traces a function of flat leaves.

A library that iterates over a set may trace the same computation in another order. So two traces also agree if their
jaxprs have equal order-free digests. In these digests, the terms of a sum count in any order: in plain JAX, too, the
order of the terms then depends on the process's hash seed.
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
    text = _MODULE.sub("module", lowered.as_text(), count=1)
    text = _EMPTY.sub("", _RESULT_INFO.sub("", text))
    found = digest("\n".join([text, *callbacks]).encode())
    return Evidence(found, text if len(text) <= _MAX_TEXT else "", callbacks)


def order_free(traced: Any, ref: values.Ref) -> bytes:
    """Return a digest of a trace that does not depend on the order of its equations.

    Return an empty digest if the trace cannot be compared in this way. User functions that the trace created, such as
    callbacks, count by their code.
    """

    def describe(value: Any) -> bytes | None:
        index = ref(value)
        if index is not None:
            return b"captured %d" % index
        is_users = type(value) is FunctionType and (is_user_function(value) or has_private_globals(value))
        return name_of_function(value, ref).encode() if is_users else None

    return order_free_digest(traced.jaxpr, describe, sums_in_any_order=True) or b""


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
