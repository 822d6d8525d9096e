"""A digest of a jaxpr that does not depend on the order in which it was traced.

Two processes that trace one function may emit its equations in different orders, because a library iterates over a
set. The digest of a variable describes how its value is computed from the inputs, so it does not depend on the position
of the equation.

- `combining.py`: how digests are combined, and the error for values that cannot be compared
- `equations.py`: equations, the jaxprs inside them, sums and the whole
- `values.py`: everything else in an equation, such as its params; `functions.py`: functions and primitives
"""

from jitclient.jaxside.jaxpr_digest.equations import order_free_digest

__all__ = ["order_free_digest"]
