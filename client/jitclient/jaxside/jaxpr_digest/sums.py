"""Digests of sums by their terms, which do not depend on the order of the additions.

The values of such sums are equal except for rounding, so callers must ask for these digests. A library that adds up
over a set uses another order, and so another rounding, in each process.
"""

from collections.abc import Sequence
from typing import Any

from jitclient.jaxside.jaxpr_digest.combining import combine, in_any_order


class Sums:
    """The terms of the sums in a jaxpr, stored under the digests of the sums."""

    def __init__(self) -> None:
        self._terms: dict[bytes, tuple[bytes, list[bytes]]] = {}

    @staticmethod
    def are_made_by(equation: Any) -> bool:
        """Return whether the results of an equation are sums of two arrays."""
        from jax.extend.core import primitives

        return equation.primitive in (primitives.add_p, primitives.add_jaxvals_p)

    def of(self, kind: bytes, operands: Sequence[bytes]) -> tuple[bytes, list[bytes]]:
        """Return the digest of an addition and the digests of its results.

        The digest of the addition does not include the operands, because partial sums depend on the order.

        Args:
            kind: A digest of the addition without its operands. Additions of one kind have the same types, and only
                their terms are merged.
            operands: The digests of the operands.
        """
        terms = [term for operand in operands for term in self._terms_of(kind, operand)]
        result = combine(b"sum", kind, in_any_order(terms))
        self._terms[result] = kind, terms
        return combine(b"addition", kind), [result]

    def _terms_of(self, kind: bytes, operand: bytes) -> list[bytes]:
        known, terms = self._terms.get(operand, (kind, [operand]))
        return terms if known == kind else [operand]
