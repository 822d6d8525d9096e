"""A digest of a jaxpr that does not depend on the order in which it was traced.

Two processes that trace one function may emit its equations, the operands of its inner jaxprs and the carries of its
loops in another order, because a library goes through a set. A variable's digest says how its value comes from the
inputs, so it is the same wherever the equation stands.

- how digests are joined, and what cannot be compared: `terms.py`
- equations and the jaxprs inside them: `equations.py`; loops: `loops.py`
- where it is asked for, sums by their terms: `sums.py`
- what else decides an equation, such as its params: `values.py`; arrays: `arrays.py`; devices: `placements.py`;
  functions and primitives: `functions.py`
"""

from jitclient.jaxside.jaxpr_digest.order_free import order_free_digest

__all__ = ["order_free_digest"]
