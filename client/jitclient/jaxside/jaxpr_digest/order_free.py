"""The digest of a whole jaxpr."""

from collections.abc import Callable
from typing import Any

from jitclient.jaxside.jaxpr_digest.equations import Equations
from jitclient.jaxside.jaxpr_digest.sums import Sums
from jitclient.jaxside.jaxpr_digest.terms import combine


def order_free_digest(
    jaxpr: Any, describe: Callable[[Any], bytes | None], sums_in_any_order: bool = False
) -> bytes | None:
    """Return a digest that equal computations have whatever the order of their equations.

    Nor does the order of the operands of inner jaxprs and of the carries of loops count. That of the jaxpr's own inputs
    and outputs does, as does that of its effects and callbacks. Equal digests mean equal computations, with equal
    versions of what is installed.

    Args:
        jaxpr: A `ClosedJaxpr`.
        describe: Gives bytes that identify a function, a class or another object that is not plain data; None where it
            does not know. It is asked first of all that can be called.
        sums_in_any_order: Whether `a + b + c` and `c + a + b` are to be equal. Their values are not: they round
            differently.

    Returns:
        The digest, or None if something in it cannot be compared.
    """
    try:
        return combine(b"program", Equations(describe, Sums() if sums_in_any_order else None).function(jaxpr))
    except Exception:  # what cannot be compared, too deep a nesting, and whatever another version of jax may bring
        return None
