"""Digests of a jaxpr: of its equations, of the jaxprs inside them, of sums by their terms, and of the whole."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from jitclient.jaxside.internals import constants_of
from jitclient.jaxside.jaxpr_digest import loops
from jitclient.jaxside.jaxpr_digest.combining import NotComparableError, combine, in_any_order
from jitclient.jaxside.jaxpr_digest.values import Values

_MAX_VISITS = 200_000
"""Maximum number of visits to equations: those in nested loops and in jaxprs with many uses are visited repeatedly."""

_IMPURE = frozenset({"rng_uniform"})
"""Primitives that have no effect, yet give different results in two equations with equal operands."""

_PER_OPERAND = ("in_shardings", "in_layouts", "donated_invars")
_PER_RESULT = ("out_shardings", "out_layouts")

_NOT_OF_THE_PROGRAM = {
    "custom_jvp_call": ("jvp_jaxpr_fun",),
    "custom_vjp_call": ("fwd_jaxpr_thunk", "bwd", "out_trees"),
    "reduce": ("computation",),
}
"""Params that affect only transformations, all of which precede the jaxpr that is compiled.

They are functions made for the trace; lowering drops them.
"""


@dataclasses.dataclass(frozen=True)
class Body:
    """The digests of a jaxpr that is applied to operands."""

    outputs: tuple[bytes, ...]
    equations: bytes
    """The digest of all equations in any order, those with unused results included: they may raise, and take time."""
    token: bytes
    """The digest of all effects so far, in order. Effects and callbacks change it, and their results depend on it."""


@dataclasses.dataclass(frozen=True)
class Place:
    """The surroundings of an equation on which its digest depends, besides its operands."""

    depth: int
    """The number of loops around the equation. Each loop has its own symbols for the values that change in it."""
    token: bytes


@dataclasses.dataclass(frozen=True)
class EquationDigest:
    """The digests of an equation and of its results, and the token after it."""

    digest: bytes
    results: Sequence[bytes]
    token: bytes


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
    """The digests of one jaxpr's equations, which describe what the equations compute from its inputs."""

    def __init__(self, describe: Callable[[Any], bytes | None], sums: Sums | None = None) -> None:
        self.values = Values(describe, self.function)
        # The keys contain ids. The values hold the objects, so that no other object can get the same id.
        self._fixed: dict[Any, tuple[Any, bytes]] = {}
        self._with_effects: dict[int, tuple[Any, bool]] = {}
        self._bodies: dict[Any, tuple[Any, Body]] = {}
        self._sums = sums
        self._n_equations = 0

    def function(self, jaxpr: Any) -> bytes:
        """Return the digest of a jaxpr as a function: its inputs and outputs have an order.

        A function uses only its inputs, so the symbols of enclosing loops do not occur in it.
        """
        inner = getattr(jaxpr, "jaxpr", jaxpr)
        if not all(map(self.values.is_pure, _avals_in(inner))):
            return self._kernel(jaxpr)
        names = [(b"input", inner.invars)]
        if constants_of(jaxpr) is None:
            names.append((b"constant", inner.constvars))
        symbols = [[combine(kind, b"%d" % n) for n in range(len(found))] for kind, found in names]
        avals = [self.values.aval(variable.aval) for _, found in names for variable in found]
        body = self.body(jaxpr, symbols[0], Place(0, combine(b"start")), *symbols[1:])
        return combine(b"function", combine(b"avals", *avals), *body.outputs, body.equations, body.token)

    def _kernel(self, jaxpr: Any) -> bytes:
        """Return the digest of a jaxpr that has references to memory: its equations have an order, as in a kernel."""
        inner, digest, numbers = getattr(jaxpr, "jaxpr", jaxpr), self.values.digest, dict[Any, bytes]()

        def bound(kind: bytes, variables: Sequence[Any]) -> bytes:
            for variable in variables:
                numbers[variable] = combine(b"variable", b"%d" % len(numbers))
            return combine(kind, *[digest(variable.aval) for variable in variables])

        def used(atoms: Sequence[Any]) -> list[bytes]:
            return [
                combine(b"literal", digest(atom.aval), digest(atom.val))
                if isinstance(atom, _literal_class())
                else numbers[atom]
                for atom in atoms
            ]

        parts = [bound(b"constants", inner.constvars), bound(b"inputs", inner.invars)]
        parts += map(digest, constants_of(jaxpr) or ())
        for equation in inner.eqns:
            self._n_equations += 1
            if self._n_equations > _MAX_VISITS:
                raise NotComparableError(equation)
            fixed = self.fixed(equation, _NOT_OF_THE_PROGRAM.get(equation.primitive.name, ()))
            parts += [combine(b"equation", fixed, *used(equation.invars)), bound(b"results", equation.outvars)]
        return combine(b"kernel", *parts, combine(b"outputs", *used(inner.outvars)))

    def body(self, jaxpr: Any, operands: Sequence[bytes], place: Place, constants: Sequence[bytes] = ()) -> Body:
        """Return the digests of a jaxpr that is applied to operands."""
        inner = getattr(jaxpr, "jaxpr", jaxpr)
        own = constants_of(jaxpr)
        if own is not None:
            constants = [combine(b"value", self.values.digest(value)) for value in own]
        key = id(inner), tuple(operands), tuple(constants), place
        if key not in self._bodies:
            self._bodies[key] = inner, self._body(inner, operands, place, constants)
        return self._bodies[key][1]

    def _body(self, jaxpr: Any, operands: Sequence[bytes], place: Place, constants: Sequence[bytes]) -> Body:
        known: dict[Any, bytes] = {}
        for variables, digests in ((jaxpr.invars, operands), (jaxpr.constvars, constants)):
            for variable, digest in zip(variables, digests, strict=True):
                known[variable] = combine(b"bound", digest, self.values.aval(variable.aval))
        found = [combine(b"constants", in_any_order(constants))]
        for equation in jaxpr.eqns:
            done = self._equation(equation, [self._atom(atom, known) for atom in equation.invars], place)
            known.update(zip(equation.outvars, done.results, strict=True))
            place = dataclasses.replace(place, token=done.token)
            found.append(done.digest)
        outputs = tuple(self._atom(atom, known) for atom in jaxpr.outvars)
        return Body(outputs, in_any_order(found), place.token)

    def _atom(self, atom: Any, known: dict[Any, bytes]) -> bytes:
        if isinstance(atom, _literal_class()):
            return combine(b"literal", self.values.aval(atom.aval), self.values.digest(atom.val))
        return known[atom]

    def _equation(self, equation: Any, operands: list[bytes], place: Place) -> EquationDigest:
        self._n_equations += 1
        if self._n_equations > _MAX_VISITS or equation.primitive.name in _IMPURE:
            raise NotComparableError(equation)
        how = _inner_orders().get(equation.primitive)
        done = None if how is None else how(self, equation, operands, place)
        return self._in_order(equation, operands, place) if done is None else done

    def _in_order(self, equation: Any, operands: list[bytes], place: Place) -> EquationDigest:
        """Return the digests of an equation whose operands have an order, and whose jaxprs are functions."""
        fixed = self.fixed(equation, _NOT_OF_THE_PROGRAM.get(equation.primitive.name, ()))
        avals = combine(b"avals", *[self.values.aval(variable.aval) for variable in equation.outvars])
        digest, token = combine(b"equation", fixed, avals, *operands), place.token
        if self._sums is not None and self._sums.are_made_by(equation):
            return EquationDigest(*self._sums.of(combine(fixed, avals), operands), token)
        if self._has_effects(equation):
            digest = combine(b"effect", place.token, digest)
            token = combine(b"after", digest)
        return EquationDigest(
            digest, [combine(b"result", digest, b"%d" % n) for n in range(len(equation.outvars))], token
        )

    def in_rows(
        self, equation: Any, parts: Sequence[bytes], rows: Sequence[bytes], place: Place, token: bytes
    ) -> EquationDigest:
        """Return the digests of an equation whose results have no order.

        Args:
            equation: The equation.
            parts: Digests of the equation's fixed parts, its operands and its inner jaxprs.
            rows: For each result, a digest that identifies it.
            place: The place of the equation.
            token: The token after the equation's inner jaxprs.
        """
        rows = [combine(b"row", row, self.values.aval(v.aval)) for row, v in zip(rows, equation.outvars, strict=True)]
        digest = combine(b"in rows", *parts, in_any_order(rows))
        if token != place.token or equation.effects:
            token = combine(b"after", place.token, digest)
        return EquationDigest(digest, [combine(b"result", digest, row) for row in rows], token)

    def fixed(self, equation: Any, left_out: Sequence[str]) -> bytes:
        """Return the digest of an equation's primitive, context, effects and params without those left out.

        The digest is the same at each visit to the equation, so it is computed once.
        """
        key = id(equation), tuple(left_out)
        if key not in self._fixed:
            digest = self.values.digest
            params = {name: value for name, value in equation.params.items() if name not in left_out}
            effects = in_any_order(map(digest, equation.effects))
            parts = digest(equation.primitive), digest(params), digest(equation.ctx), effects
            self._fixed[key] = equation, combine(b"fixed", *parts)
        return self._fixed[key][1]

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


def _call(found: Equations, equation: Any, operands: list[bytes], place: Place) -> EquationDigest:
    """Return the digests of an equation that applies a jaxpr to operands whose order does not count."""
    params = equation.params
    (name,) = [name for name in ("jaxpr", "call_jaxpr") if name in params]
    unused = _NOT_OF_THE_PROGRAM.get(equation.primitive.name, ())
    rows = [combine(b"operand", *row) for row in _rows(found, operands, params, _PER_OPERAND)]
    body = found.body(params[name], rows, place)
    results = [combine(b"output", *row) for row in _rows(found, body.outputs, params, _PER_RESULT)]
    fixed = found.fixed(equation, (name, *_PER_OPERAND, *_PER_RESULT, *unused))
    return found.in_rows(equation, (fixed, in_any_order(rows), body.equations, body.token), results, place, body.token)


def _rows(
    found: Equations, digests: Sequence[bytes], params: dict[str, Any], names: Sequence[str]
) -> list[tuple[bytes, ...]]:
    """Return, for each operand or result, its digest and the digests of its own entries in some params."""
    held = [params[name] for name in names if name in params]
    if any(not isinstance(values, tuple) or len(values) != len(digests) for values in held):
        raise NotComparableError(params)
    return [(digest, *(found.values.digest(values[n]) for values in held)) for n, digest in enumerate(digests)]


def _cond(found: Equations, equation: Any, operands: list[bytes], place: Place) -> EquationDigest:
    """Return the digests of a `cond`, whose branches have an order, but whose operands do not."""
    index, *rest = operands
    bodies = [found.body(branch, rest, place) for branch in equation.params["branches"]]
    branches = [combine(b"branch", body.equations, body.token) for body in bodies]
    rows = [combine(b"of each branch", *outputs) for outputs in zip(*(body.outputs for body in bodies), strict=True)]
    parts = (found.fixed(equation, ("branches",)), index, in_any_order(rest), *branches)
    token = place.token if all(body.token == place.token for body in bodies) else combine(b"branches", *branches)
    return found.in_rows(equation, parts, rows, place, token)


_DigestFunction = Callable[[Equations, Any, list[bytes], Place], EquationDigest | None]


@functools.cache
def _inner_orders() -> dict[Any, _DigestFunction]:
    """Return the digest functions for jax's primitives whose operands have no order of their own."""
    from jax.extend.core import primitives

    calls = ("jit_p", "closed_call_p", "call_p", "remat_p", "custom_jvp_call_p", "custom_vjp_call_p")
    named: dict[str, _DigestFunction] = {**dict.fromkeys(calls, _call), "cond_p": _cond}
    named |= {"scan_p": loops.scan, "while_p": loops.while_loop}
    return {getattr(primitives, name): how for name, how in named.items() if hasattr(primitives, name)}


@functools.cache
def _literal_class() -> Any:
    from jax.extend.core import Literal

    return Literal


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
