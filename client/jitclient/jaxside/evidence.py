"""Evidence of a trace: what the client's own trace and the daemon's are compared by.

Two traces agree if their lowered texts and their callbacks are the same. The text has no file names and no lines. It
does have the name of the module and the paths of the results, which only describe the program: these are left out,
because the daemon traces a function of flat leaves.

A library that goes through a set may trace the same computation in another order. So traces agree, too, if the digests
of their jaxprs without the order are equal. The terms of a sum count in any order there: which one a process has
depends on its hash seed, in plain JAX as well.
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
"""Longer texts are compared by their digests alone."""

_MODULE = re.compile(r"^module @\S+", re.MULTILINE)
_RESULT_INFO = re.compile(r'jax\.result_info = "[^"]*"(, )?')
_EMPTY = re.compile(r" \{\}(?=[,)])")


def evidence_of(traced: Any, lowered: Any, ref: values.Ref) -> Evidence:
    """Return the evidence of a function that JAX traced and lowered; `ref` gives the positions of captured objects."""
    text = _MODULE.sub("module", lowered.as_text(), count=1)
    text = _EMPTY.sub("", _RESULT_INFO.sub("", text))
    callbacks = callback_names(traced.jaxpr, ref)
    found = digest("\n".join([text, *callbacks]).encode())
    return Evidence(found, text if len(text) <= _MAX_TEXT else "", callbacks)


def order_free(traced: Any, ref: values.Ref) -> bytes:
    """Return a digest of a trace that does not depend on its order; empty if it cannot be compared in that way.

    Functions of the user's that the trace made, which are callbacks, count by their code.
    """

    def describe(value: Any) -> bytes | None:
        index = ref(value)
        if index is not None:
            return b"captured %d" % index
        is_users = type(value) is FunctionType and (is_user_function(value) or has_private_globals(value))
        return name_of_function(value, ref).encode() if is_users else None

    return order_free_digest(traced.jaxpr, describe, sums_in_any_order=True) or b""


def difference(here: Evidence, there: Evidence) -> str:
    """Return the first difference between the evidence of two traces; empty if they agree."""
    if here.digest == there.digest:
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
