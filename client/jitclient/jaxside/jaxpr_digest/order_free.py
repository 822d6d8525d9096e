"""The order-free digest of a whole jaxpr."""

from collections.abc import Callable
from typing import Any

from jitclient.jaxside.jaxpr_digest.combining import combine
from jitclient.jaxside.jaxpr_digest.equations import Equations
from jitclient.jaxside.jaxpr_digest.sums import Sums


def order_free_digest(
    jaxpr: Any, describe: Callable[[Any], bytes | None], sums_in_any_order: bool = False
) -> bytes | None:
    """Return a digest that is equal for equal computations, no matter in which order their equations are.

    The order of the operands of inner jaxprs and of the carries of loops does not count either. The order of the
    jaxpr's own inputs and outputs counts, and so does the order of its effects and callbacks. Equal digests mean equal
    computations, if the versions of installed packages are equal.

    Args:
        jaxpr: A `ClosedJaxpr`.
        describe: Gives bytes that identify a function, a class or another object that is not plain data; None if it
            knows none. For callables, it takes precedence over all other descriptions.
        sums_in_any_order: Whether `a + b + c` and `c + a + b` are to have equal digests. Their values differ by
            rounding.

    Returns:
        The digest, or None if a part of the jaxpr cannot be compared.
    """
    try:
        return combine(b"program", Equations(describe, Sums() if sums_in_any_order else None).function(jaxpr))
    # Besides NotComparableError: RecursionError for deep nesting, and any error with another version of jax.
    except Exception:
        return None
