"""Sums by their terms, whatever the order in which these are added up.

Their values are equal but for rounding, so this is only for who asks for it: a library that adds up over a set has
another order of it, and so another rounding, in each process.
"""

from collections.abc import Sequence
from typing import Any

from jitclient.jaxside.jaxpr_digest.terms import combine, in_any_order


class Sums:
    """The terms of the sums in a jaxpr, by the digests of the sums."""

    def __init__(self) -> None:
        self._terms: dict[bytes, tuple[bytes, list[bytes]]] = {}

    @staticmethod
    def are_made_by(equation: Any) -> bool:
        """Return whether an equation adds two arrays."""
        from jax.extend.core import primitives

        return equation.primitive in (primitives.add_p, primitives.add_jaxvals_p)

    def of(self, kind: bytes, operands: Sequence[bytes]) -> tuple[bytes, list[bytes]]:
        """Return the digest of an addition and that of its result. Those of one kind have the same types.

        The former is without the operands: the sums on the way differ with the order.
        """
        terms = [term for operand in operands for term in self._terms_of(kind, operand)]
        result = combine(b"sum", kind, in_any_order(terms))
        self._terms[result] = kind, terms
        return combine(b"addition", kind), [result]

    def _terms_of(self, kind: bytes, operand: bytes) -> list[bytes]:
        known, terms = self._terms.get(operand, (kind, [operand]))
        return terms if known == kind else [operand]
