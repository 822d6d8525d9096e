"""Digests of `scan` and `while` loops, whose carries may have any order.

The digest of a loop's body is computed on symbols in place of values. The symbol of a carry is made from its colour.
Carries of one colour have equal initial values, and the body computes the same next value for each of them when it is
given colours for carries; `_settled` finds such colours. By induction, the carries of one colour have equal values in
every round. The digest of a loop contains one row for each carry: its colour, its initial value and its next value.
Two loops with equal rows have, by the same induction, equal values for carries of equal colours, no matter in which
order the carries are and how the colours were found.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from jitclient.jaxside.internals import sizes_of_scan
from jitclient.jaxside.jaxpr_digest.combining import combine, in_any_order

if TYPE_CHECKING:
    from jitclient.jaxside.jaxpr_digest.equations import Body, EquationDigest, Equations, Place


def scan(found: "Equations", equation: Any, operands: list[bytes], place: "Place") -> "EquationDigest | None":
    """Return the digests of a `scan` with its carries in any order; None if it has effects."""
    jaxpr, (n_consts, n_carry) = equation.params["jaxpr"], sizes_of_scan(equation.params)
    consts, inits, xs = _split(operands, n_consts, n_carry)
    inside = _inside(place)
    items = [combine(b"item", b"%d" % inside.depth, x) for x in xs]

    def body(colours: Sequence[bytes]) -> "Body":
        return found.body(jaxpr, [*consts, *_symbols(colours, inside), *items], inside)

    colours = _settled(inits, lambda colours: body(colours).outputs[:n_carry])
    made = body(colours)
    if made.token != inside.token or equation.effects:
        return None
    rows = [
        *_carry_rows(colours, inits, made.outputs),
        *[combine(b"stacked", output) for output in made.outputs[n_carry:]],
    ]
    fixed = found.fixed(equation, ("jaxpr", "ft_in", "ft_out"))
    parts = (b"scan", fixed, in_any_order(consts), in_any_order(xs), made.equations)
    return found.in_rows(equation, parts, rows, place, place.token)


def while_loop(found: "Equations", equation: Any, operands: list[bytes], place: "Place") -> "EquationDigest | None":
    """Return the digests of a `while` loop with its carries in any order; None if it has effects."""
    params = equation.params
    of_cond, of_body, inits = _split(operands, params["cond_nconsts"], params["body_nconsts"])
    inside = _inside(place)

    def of(jaxpr: Any, consts: Sequence[bytes], colours: Sequence[bytes]) -> "Body":
        return found.body(jaxpr, [*consts, *_symbols(colours, inside)], inside)

    colours = _settled(inits, lambda colours: of(params["body_jaxpr"], of_body, colours).outputs)
    made, cond = of(params["body_jaxpr"], of_body, colours), of(params["cond_jaxpr"], of_cond, colours)
    if {made.token, cond.token} != {inside.token} or equation.effects:
        return None
    rows = _carry_rows(colours, inits, made.outputs)
    fixed = found.fixed(equation, ("cond_jaxpr", "body_jaxpr"))
    consts = (in_any_order(of_cond), in_any_order(of_body))
    parts = (b"while", fixed, *consts, made.equations, cond.equations, *cond.outputs)
    return found.in_rows(equation, parts, rows, place, place.token)


def _split(operands: list[bytes], n_first: int, n_second: int) -> tuple[list[bytes], list[bytes], list[bytes]]:
    end = n_first + n_second
    return operands[:n_first], operands[n_first:end], operands[end:]


def _inside(place: "Place") -> "Place":
    """Return the place of the equations in a loop's body, with the token of a round without effects yet."""
    return type(place)(place.depth + 1, combine(b"start of a round"))


def _symbols(colours: Sequence[bytes], inside: "Place") -> list[bytes]:
    """Return the symbols for the carries in the body. The symbols of enclosing loops differ by their depth."""
    return [combine(b"carry", b"%d" % inside.depth, colour) for colour in colours]


def _settled(inits: Sequence[bytes], step: Callable[[Sequence[bytes]], Sequence[bytes]]) -> Sequence[bytes]:
    """Return a colour for each carry, by colour refinement.

    Carries of one colour have equal initial values and equal steps. A step may distinguish carries of one colour, which
    then get different colours. When a step distinguishes none, it computes the same for all carries of one colour.
    """
    colours = inits
    while len(set(colours)) < len(colours):
        refined = [combine(b"colour", *both) for both in zip(colours, step(colours), strict=True)]
        if len(set(refined)) == len(set(colours)):
            break
        colours = refined
    return colours


def _carry_rows(colours: Sequence[bytes], inits: Sequence[bytes], outputs: Sequence[bytes]) -> list[bytes]:
    return [combine(b"carried", *row) for row in zip(colours, inits, outputs[: len(colours)], strict=True)]
