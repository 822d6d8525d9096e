"""Digests of a jaxpr: of its equations, of the jaxprs inside them, of sums by their terms, and of the whole."""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from jitclient.jaxside.internals import constants_of
from jitclient.jaxside.jaxpr_digest.combining import NotComparableError, combine, in_any_order
from jitclient.jaxside.jaxpr_digest.values import Values

_IMPURE = frozenset({"rng_uniform"})
"""Primitives that have no effect, yet give different results in two equations with equal operands."""

_NOT_OF_THE_PROGRAM = {
    "custom_jvp_call": ("jvp_jaxpr_fun",),
    "custom_vjp_call": ("fwd_jaxpr_thunk", "bwd", "out_trees"),
    "reduce": ("computation",),
}
"""Params that affect only transformations, all of which precede the jaxpr that is compiled.

They are functions made for the trace; lowering drops them.
"""


class Sums:
    """The terms of the sums in a jaxpr, stored under the digests of the sums.

    A sum's digest is that of its terms in any order. The values of sums with equal digests are equal except for
    rounding, so callers must ask for these digests. A library that adds up over a set uses another order, and so
    another rounding, in each process.
    """

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


class Equations:
    """Digests of jaxprs as functions, in which equations are named by what they compute from the inputs."""

    def __init__(self, describe: Callable[[Any], bytes | None], sums: Sums | None = None) -> None:
        self._values = Values(describe, self.function)
        # By id. The objects are held, so that no other object can get the same id.
        self._with_effects: dict[int, tuple[Any, bool]] = {}
        self._sums = sums

    def function(self, jaxpr: Any) -> bytes:
        """Return the digest of a jaxpr: its inputs, outputs and effects have an order.

        All equations count, those with unused results included: they may raise, and take time.
        """
        inner, digest = getattr(jaxpr, "jaxpr", jaxpr), self._values.digest
        values = constants_of(jaxpr)
        known = {v: combine(b"input", b"%d" % n, digest(v.aval)) for n, v in enumerate(inner.invars)}
        if values is None:
            known |= {v: combine(b"constant", b"%d" % n, digest(v.aval)) for n, v in enumerate(inner.constvars)}
        else:
            pairs = zip(inner.constvars, values, strict=True)
            known |= {v: combine(b"value", digest(value), digest(v.aval)) for v, value in pairs}
        bound, token, found = list(known.values()), combine(b"start"), list[bytes]()
        # In a kernel, for example, two references may have equal digests and yet change independently.
        in_order = not all(map(self._values.is_pure, _avals_in(inner)))
        for equation in inner.eqns:
            operands = [self._atom(atom, known) for atom in equation.invars]
            kind, operation = self._operation(equation, operands)
            if in_order or self._has_effects(equation):
                operation = token = combine(b"effect", token, operation)
            if self._sums is not None and self._sums.are_made_by(equation) and not in_order:
                operation, results = self._sums.of(kind, operands)
            else:
                results = [combine(b"result", operation, b"%d" % n) for n in range(len(equation.outvars))]
            known.update(zip(equation.outvars, results, strict=True))
            found.append(operation)
        outputs = [self._atom(atom, known) for atom in inner.outvars]
        return combine(b"function", in_any_order(bound), in_any_order(found), token, *outputs)

    def _atom(self, atom: Any, known: dict[Any, bytes]) -> bytes:
        if isinstance(atom, _literal_class()):
            return combine(b"literal", self._values.digest(atom.aval), self._values.digest(atom.val))
        return known[atom]

    def _operation(self, equation: Any, operands: Sequence[bytes]) -> tuple[bytes, bytes]:
        """Return the digests of an equation without and with its operands."""
        name, digest = equation.primitive.name, self._values.digest
        if name in _IMPURE:
            raise NotComparableError(equation)
        left_out = _NOT_OF_THE_PROGRAM.get(name, ())
        params = {name: value for name, value in equation.params.items() if name not in left_out}
        effects = in_any_order(map(digest, equation.effects))
        avals = combine(b"avals", *[digest(variable.aval) for variable in equation.outvars])
        kind = combine(b"kind", digest(equation.primitive), digest(params), digest(equation.ctx), effects, avals)
        return kind, combine(b"equation", kind, *operands)

    def _has_effects(self, equation: Any) -> bool:
        found = self._with_effects.get(id(equation))
        if found is None:
            found = self._with_effects[id(equation)] = equation, _has_effects(equation)
        return found[1]


def _avals_in(jaxpr: Any) -> Iterator[Any]:
    """Yield the abstract values of the variables that a jaxpr binds."""
    for variables in (jaxpr.constvars, jaxpr.invars, *(equation.outvars for equation in jaxpr.eqns)):
        for variable in variables:
            yield variable.aval


def _has_effects(equation: Any) -> bool:
    """Return whether an equation does more than compute. A callback is assumed to, whatever it declares."""
    from jax.extend.core import jaxprs_in_params

    if equation.effects or "callback" in equation.primitive.name:
        return True
    return any(_has_effects(inner) for jaxpr in jaxprs_in_params(equation.params) for inner in jaxpr.eqns)


@functools.cache
def _literal_class() -> Any:
    from jax.extend.core import Literal

    return Literal


def order_free_digest(
    jaxpr: Any, describe: Callable[[Any], bytes | None], sums_in_any_order: bool = False
) -> bytes | None:
    """Return a digest that is equal for equal computations, no matter in which order their equations are.

    The order of inputs, outputs, operands, carries of loops, effects and callbacks counts. Equal digests mean equal
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
