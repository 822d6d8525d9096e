"""Equal digests mean equal computations, and the order in which a computation was traced does not count."""

import functools
import itertools
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax._src.interpreters import mlir as rules
from jax.experimental import io_callback, pallas
from jax.extend.core import Primitive
from jax.interpreters import mlir

from jitclient.jaxside import evidence
from jitclient.jaxside.evidence import order_free
from jitclient.jaxside.jaxpr_digest import order_free_digest

X, Y = jnp.ones(3), jnp.arange(3.0)
Order = Sequence[int]


def describe(obj: Any) -> bytes | None:
    """Return the name of a user's function, which is its identity in this file."""
    name = getattr(obj, "__qualname__", None)
    return name.encode() if getattr(obj, "__module__", None) == __name__ and name else None


def known(fun: Callable[..., Any], *args: Any) -> bytes:
    found = order_free_digest(jax.make_jaxpr(fun)(*args), describe)
    assert found is not None
    return found


def without_order(fun: Callable[..., Any], *args: Any) -> bytes:
    traced = jax.jit(fun).trace(*args)
    return order_free(traced, traced.lower(), lambda obj: None)


# The same in any order: each function makes its variables in the order that it is given.


def in_order(order: Order, parts: Sequence[Callable[[], Any]]) -> list[Any]:
    made = {n: parts[n]() for n in order}
    return [made[n] for n in range(len(parts))]


def equations(order: Order, x: Any, y: Any) -> Any:
    a, b, c = in_order(order, [lambda: x + y, lambda: jnp.sin(x), lambda: y - x])
    return a * b, c


def constants(order: Order, x: Any, y: Any) -> Any:
    held = [np.arange(3) + 1, np.arange(3) * 2.0, np.array([True, False, True])]
    a, b, c = in_order(order, [lambda: x + held[0], lambda: y - held[1], lambda: jnp.where(held[2], x, y)])
    return a - b + c


def remat(order: Order, x: Any, y: Any) -> Any:
    def inner(held: dict[int, Any]) -> Any:
        return {n: jnp.sin(held[n]) * held[0] for n in order}

    return jax.checkpoint(inner)({n: [x, y, x - y][n] for n in order})[1]  # type: ignore[attr-defined]


def inner(order: Order, x: Any, y: Any) -> Any:
    return jax.grad(lambda x: jnp.sum(jax.jit(functools.partial(equations, order))(x, y)[0]))(x)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
@pytest.mark.parametrize("fun", [equations, constants, remat, inner], ids=lambda fun: fun.__name__)
def test_the_order_of_a_trace_does_not_count(fun: Callable[..., Any], order: Order) -> None:
    here, there = functools.partial(fun, order), functools.partial(fun, (0, 1, 2))
    assert known(here, X, Y) == known(there, X, Y)
    assert without_order(here, X, Y) == without_order(there, X, Y) != b""


# Small changes that matter: (one computation, another).


def carrying(new: Callable[..., Any], starts: tuple[float, ...] = (1.0, 2.0), **how: Any) -> Callable[..., Any]:
    def run(x: Any) -> Any:
        return lax.scan(lambda carry, item: (new(*carry, item), carry[0]), starts, x, **how)

    return run


def looping(is_on: Callable[..., Any], new: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: lax.while_loop(lambda held: is_on(*held), lambda held: new(*held), (x, x * 2, 0))


def loops_in_loops(new: Callable[..., Any]) -> Callable[[Any], Any]:
    """A loop whose carry begins as that of the loop around it, from which it must be told."""

    def run(x: Any) -> Any:
        def outer(a: Any) -> Any:
            return lax.while_loop(lambda b: b < 9.0, lambda b: new(a, b), x)

        return lax.while_loop(lambda a: a < 9.0, outer, x)

    return run


def twice(fun: Callable[[], Any], use: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        a, b = fun(), fun()
        return use(a, b) + x

    return run


def ask() -> Any:
    return io_callback(np.random.rand, jax.ShapeDtypeStruct((), np.float32))


def printed(*texts: str, ordered: bool = False) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        for text in texts:
            jax.debug.print(text, x, ordered=ordered)
        return x

    return run


def double(x: Any) -> Any:
    return x * 2


def triple(x: Any) -> Any:
    return x * 3


def calling(fun: Callable[[Any], Any], **how: Any) -> Callable[[Any], Any]:
    return lambda x: jax.pure_callback(fun, jax.ShapeDtypeStruct(x.shape, x.dtype), x, **how)


def converting(dtype: Any) -> Callable[[Any], Any]:
    return lambda x: lax.convert_element_type(x, dtype)


def jitted(fun: Callable[..., Any], **how: Any) -> Callable[[Any], Any]:
    return lambda x: jax.jit(fun, **how)(x, x * 2)


def minus(x: Any, y: Any) -> Any:
    return x - y


@functools.wraps(minus)
def of_that_name(x: Any, y: Any) -> Any:
    return x - y - y


def bits(impl: str) -> Callable[[Any], Any]:
    return lambda x: jax.random.bits(jax.random.key(1, impl=impl)) + x.astype(np.uint32)


def convolved(**how: Any) -> Callable[[Any], Any]:
    given: dict[str, Any] = {"window_strides": (1,), "padding": [(0, 0)], **how}
    return lambda x: lax.conv_general_dilated(x[None, None], x[None, None, :2], **given)


def windowed(how: dict[str, Any]) -> Callable[[Any], Any]:
    return lambda x: lax.reduce_window(x, -jnp.inf, lax.max, **{"window_dimensions": (2,), **how})


def times(**how: Any) -> Callable[[Any], Any]:
    return lambda x: jnp.dot(x, x, **how)


def kept(**how: Any) -> Callable[[Any], Any]:
    return jax.grad(lambda x: jnp.sum(jax.checkpoint(lambda x: jnp.sin(jnp.sin(x)), **how)(x)))  # type: ignore[attr-defined]


def mutated(use: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        a, b = jax.new_ref(x), jax.new_ref(x)
        a[...] = x * 2
        return use(a, b)[...]

    return run


def kernel(
    change: Callable[[Any, Any], None],
    index: Callable[[Any], tuple[Any, ...]] = lambda n: (n,),
    rows: int = 1,
    grid: int = 3,
) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        def body(given: Any, result: Any) -> None:
            change(given, result)

        spec = pallas.BlockSpec((rows,), index)
        return pallas.pallas_call(body, out_shape=x, grid=(grid,), in_specs=[spec], out_specs=spec)(x)

    return run


def doubled(given: Any, result: Any) -> None:
    result[...] = given[...] * 2


def first(given: Any, result: Any) -> None:
    @pallas.when(pallas.program_id(0) == 0)
    def _() -> None:
        result[...] = given[...]


def second(given: Any, result: Any) -> None:
    @pallas.when(pallas.program_id(0) == 1)
    def _() -> None:
        result[...] = given[...]


def written(order: Sequence[int]) -> Callable[[Any, Any], None]:
    def change(given: Any, result: Any) -> None:
        for number in order:
            result[...] = given[...] + number

    return change


CHANGES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "literal": (lambda x: x + 1, lambda x: x + 2),
    "reference that is changed": (mutated(lambda a, b: a), mutated(lambda a, b: b)),
    "blocks of a kernel": (kernel(doubled), kernel(doubled, rows=3)),
    "places of a kernel's blocks": (kernel(doubled), kernel(doubled, index=lambda n: (2 - n,))),
    "grid of a kernel": (kernel(doubled), kernel(doubled, grid=2)),
    "condition in a kernel": (kernel(first), kernel(second)),
    "order of writes in a kernel": (kernel(written([1, 2])), kernel(written([2, 1]))),
    "sign of zero": (lambda x: x + 0.0, lambda x: x + -0.0),
    "nan and infinity": (lambda x: x + jnp.nan, lambda x: x + jnp.inf),
    "constant": (lambda x: x + np.arange(3.0), lambda x: x + np.arange(3.0) * 2),
    "sign of a constant's zero": (lambda x: x + np.zeros(3), lambda x: x + -np.zeros(3)),
    "dtype of a constant": (lambda x: np.arange(3), lambda x: np.arange(3.0)),
    "shape of a constant": (lambda x: np.ones((1, 3)), lambda x: np.ones((3, 1))),
    "primitive": (lambda x: x + x, lambda x: x * x),
    "converted dtype": (converting(np.float16), converting(jnp.bfloat16)),
    "small dtypes": (converting(jnp.float8_e4m3fn), converting(jnp.float8_e5m2)),
    "weak type": (lambda x: jnp.asarray(1.0), lambda x: jnp.asarray(1.0, np.float32)),
    "operands of sub": (lambda x: x - x[::-1], lambda x: x[::-1] - x),
    "axis": (lambda x: jnp.sum(x[None], 0), lambda x: jnp.sum(x[None].T, 1)),
    "direction of a cumulative sum": (lambda x: lax.cumsum(x), lambda x: lax.cumsum(x, reverse=True)),
    "shift": (lambda x: jnp.roll(x, 1), lambda x: jnp.roll(x, 2)),
    "exponent": (lambda x: x**2, lambda x: x**3),
    "precision": (times(precision="high"), times(precision="highest")),
    "accumulator": (times(), times(preferred_element_type=jnp.bfloat16)),
    "indices": (lambda x: x[jnp.array([0, 1])], lambda x: x[jnp.array([0, 2])]),
    "mode of a gather": (
        lambda x: x.at[x.astype(int)].get(mode="fill"),
        lambda x: x.at[x.astype(int)].get(mode="clip"),
    ),
    "value of a fill": (
        lambda x: x.at[x.astype(int)].get(mode="fill", fill_value=0.0),
        lambda x: x.at[x.astype(int)].get(mode="fill", fill_value=1.0),
    ),
    "kind of a scatter": (lambda x: x.at[0].add(2.0), lambda x: x.at[0].multiply(2.0)),
    "unique indices": (
        lambda x: x.at[x.astype(int)].add(1.0),
        lambda x: x.at[x.astype(int)].add(1.0, unique_indices=True),
    ),
    "stable sort": (lambda x: lax.sort(x, is_stable=True), lambda x: lax.sort(x, is_stable=False)),
    "stride of a convolution": (convolved(), convolved(window_strides=(2,))),
    "padding of a convolution": (convolved(), convolved(padding=[(0, 1)])),
    "dilation of a convolution": (convolved(), convolved(rhs_dilation=(2,))),
    "window": (windowed({}), windowed({"window_dimensions": (3,)})),
    "padding of a window": (
        windowed({"window_strides": (1,), "padding": ((0, 1),)}),
        windowed({"window_strides": (1,), "padding": ((1, 0),)}),
    ),
    "reducer": (
        lambda x: lax.reduce(x, 1.0, lambda a, b: a * b + 1, (0,)),
        lambda x: lax.reduce(x, 1.0, lambda a, b: a * b + 2, (0,)),
    ),
    "order of outputs": (lambda x: (x + 1, x + 2), lambda x: (x + 2, x + 1)),
    "output that is an input": (lambda x: (x, x + 1), lambda x: (x + 1, x)),
    "number of outputs": (lambda x: x + 1, lambda x: (x + 1, x + 1)),
    "unused equation": (lambda x: x + 1, lambda x: (x * 2, x + 1)[1]),
    "computed twice": (lambda x: jnp.sin(x) + jnp.sin(x), lambda x: (lambda a: a + a)(jnp.sin(x))),
    "jit or not": (lambda x: minus(x, x * 2), jitted(minus)),
    "name of an inner jit": (jitted(minus), jitted(lambda x, y: x - y)),
    "operands of an inner jit": (jitted(minus), lambda x: jax.jit(minus)(x * 2, x)),
    "body of an inner jit": (jitted(minus), jitted(of_that_name)),
    "donated": (jitted(minus), jitted(minus, donate_argnums=0)),
    "which is donated": (jitted(minus, donate_argnums=1), jitted(minus, donate_argnums=0)),
    "inlined": (jitted(minus), jitted(minus, inline=True)),
    "length": (
        lambda x: lax.scan(lambda c, _: (c * 2, None), x, length=3),
        lambda x: lax.scan(lambda c, _: (c * 2, None), x, length=4),
    ),
    "direction of a scan": (carrying(lambda a, b, x: (a + x, b)), carrying(lambda a, b, x: (a + x, b), reverse=True)),
    "unrolling": (carrying(lambda a, b, x: (a + x, b)), carrying(lambda a, b, x: (a + x, b), unroll=2)),
    "carries that change places": (carrying(lambda a, b, x: (a, b)), carrying(lambda a, b, x: (b, a))),
    "carry that is used": (carrying(lambda a, b, x: (a + a, b)), carrying(lambda a, b, x: (a + b, b))),
    "equal starts": (
        carrying(lambda a, b, x: (a + x, b - x), (1.0, 1.0)),
        carrying(lambda a, b, x: (b + x, a - x), (1.0, 1.0)),
    ),
    "a carry that only lags": (
        carrying(lambda a, b, c, x: (b, c, c + x), (1.0, 1.0, 1.0)),
        carrying(lambda a, b, c, x: (b, b, c + x), (1.0, 1.0, 1.0)),
    ),
    "start": (carrying(lambda a, b, x: (a + x, b)), carrying(lambda a, b, x: (a + x, b), (1.0, 3.0))),
    "starts": (carrying(lambda a, b, x: (a + x, b)), carrying(lambda a, b, x: (a + x, b), (2.0, 1.0))),
    "item or constant": (
        lambda x: lax.scan(lambda c, item: (c + item, None), 0.0, x),
        lambda x: lax.scan(lambda c, item: (c + x[0], None), 0.0, x),
    ),
    "bound of a while": (
        looping(lambda a, b, n: n < 3, lambda a, b, n: (a, b, n + 1)),
        looping(lambda a, b, n: n < 4, lambda a, b, n: (a, b, n + 1)),
    ),
    "condition of a while": (
        looping(lambda a, b, n: n < 3, lambda a, b, n: (a, b, n + 1)),
        looping(lambda a, b, n: n <= 3, lambda a, b, n: (a, b, n + 1)),
    ),
    "while whose carries change places": (
        looping(lambda a, b, n: n < 3, lambda a, b, n: (a, b, n + 1)),
        looping(lambda a, b, n: n < 3, lambda a, b, n: (b, a, n + 1)),
    ),
    "loop in a loop": (
        lambda x: loops_in_loops(lambda a, b: b + a)(x[0]),
        lambda x: loops_in_loops(lambda a, b: b + b)(x[0]),
    ),
    "branches": (
        lambda x: lax.cond(x[0] > 0, jnp.sin, jnp.cos, x),
        lambda x: lax.cond(x[0] > 0, jnp.cos, jnp.sin, x),
    ),
    "results of branches": (
        lambda x: lax.cond(x[0] > 0, lambda x: (x, -x), lambda x: (x, x), x),
        lambda x: lax.cond(x[0] > 0, lambda x: (-x, x), lambda x: (x, x), x),
    ),
    "predicate": (
        lambda x: lax.cond(x[0] > 0, jnp.sin, jnp.cos, x),
        lambda x: lax.cond(x[1] > 0, jnp.sin, jnp.cos, x),
    ),
    "generator": (bits("threefry2x32"), bits("rbg")),
    "generators alike": (bits("rbg"), bits("unsafe_rbg")),
    "seed": (lambda x: jax.random.normal(jax.random.key(1)), lambda x: jax.random.normal(jax.random.key(2))),
    "distribution": (
        lambda x: jax.random.bits(jax.random.key(1), (2,)),
        lambda x: jax.random.bits(jax.random.key(1), (3,)),
    ),
    "text that is printed": (printed("a {}"), printed("b {}")),
    "ordered effect": (printed("a {}"), printed("a {}", ordered=True)),
    "order of ordered effects": (printed("a {}", "b {}", ordered=True), printed("b {}", "a {}", ordered=True)),
    "order of effects": (printed("a {}", "b {}"), printed("b {}", "a {}")),
    "another effect": (printed("a {}"), printed("a {}", "a {}")),
    "effect of a branch": (
        lambda x: lax.cond(x[0] > 0, printed("a {}"), printed("b {}"), x),
        lambda x: lax.cond(x[0] > 0, printed("b {}"), printed("a {}"), x),
    ),
    "effect in a loop": (
        carrying(lambda a, b, x: (printed("a {}")(a), b)),
        carrying(lambda a, b, x: (a, printed("a {}")(b))),
    ),
    "effect of an inner jit": (lambda x: jax.jit(printed("a {}"))(x), lambda x: jax.jit(printed("b {}"))(x)),
    "effect before a jit or in it": (
        lambda x: jax.jit(printed("b {}"))(printed("a {}")(x)),
        lambda x: jax.jit(printed("a {}"))(printed("b {}")(x)),
    ),
    "which result of an effect": (twice(ask, lambda a, b: a - b), twice(ask, lambda a, b: b - a)),
    "one result of an effect": (twice(ask, lambda a, b: a - b), twice(ask, lambda a, b: a - a)),
    "result of an effect in a jit": (
        twice(lambda: jax.jit(ask)(), lambda a, b: a - b),
        twice(lambda: jax.jit(ask)(), lambda a, b: a - a),
    ),
    "result of an effect in a loop": (
        twice(lambda: lax.fori_loop(0, 3, lambda i, c: c + ask(), 0.0), lambda a, b: a - b),
        twice(lambda: lax.fori_loop(0, 3, lambda i, c: c + ask(), 0.0), lambda a, b: a - a),
    ),
    "callback": (calling(double), calling(triple)),
    "how a callback is mapped": (calling(double, vmap_method="sequential"), calling(double, vmap_method="expand_dims")),
    "optimization barrier": (lambda x: lax.optimization_barrier(x) + 1, lambda x: x + 1),
    "common subexpressions of a remat": (kept(prevent_cse=True), kept(prevent_cse=False)),
    "policy of a remat": (
        kept(policy=jax.checkpoint_policies.everything_saveable),
        kept(policy=jax.checkpoint_policies.nothing_saveable),
    ),
    "names of a policy": (
        kept(policy=jax.checkpoint_policies.save_only_these_names("a")),
        kept(policy=jax.checkpoint_policies.save_only_these_names("b")),
    ),
    "custom derivative or not": (lambda x: jax.nn.relu(x), lambda x: jnp.maximum(x, 0)),
    "triangle": (
        lambda x: jnp.linalg.cholesky(x[:, None] * x, upper=True),
        lambda x: jnp.linalg.cholesky(x[:, None] * x),
    ),
    "solver": (
        lambda x: lax.custom_linear_solve(lambda v: v * x, x, lambda _, b: b),
        lambda x: lax.custom_linear_solve(lambda v: v * x, x, lambda _, b: b * 2),
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_small_change_counts(change: str) -> None:
    before, after = CHANGES[change]
    assert known(before, Y) == known(before, Y)
    assert known(before, Y) != known(after, Y)


def test_the_inputs_count() -> None:
    fun: Callable[..., Any] = lambda x, y: x - y
    inputs = [(X, Y), (X, 1.0), (1.0, X), (X, np.float32(1)), (X.astype(int), Y), (X[None], Y), (X, Y[:, None])]
    digests = [known(fun, *given) for given in inputs] + [known(lambda x, y: y - x, X, Y)]
    assert len(set(digests)) == len(digests)


def test_unlike_computations_have_unlike_digests() -> None:
    """Programs with one digest have one text, as none of these differ in order alone."""
    funs = [fun for both in CHANGES.values() for fun in both]
    jaxprs = [jax.make_jaxpr(fun)(Y) for fun in dict.fromkeys(funs)]
    alike: dict[bytes, set[str]] = {}
    for jaxpr in jaxprs:
        digest = order_free_digest(jaxpr, describe)
        assert digest is not None
        alike.setdefault(digest, set()).add(str(jaxpr))
    assert not [texts for texts in alike.values() if len(texts) > 1]


# An object that cannot be compared has no digest.

OPAQUE = Primitive("add")  # another primitive of jax has this name
OPAQUE.def_abstract_eval(lambda x, **params: x)


def hold(**params: Any) -> Callable[[Any], Any]:
    return lambda x: OPAQUE.bind(x, **params)


@pytest.mark.parametrize(
    "fun",
    [
        hold(),
        calling(lambda x: x),
        calling(np.vectorize(lambda x: x)),
        lambda x: lax.rng_uniform(0.0, 1.0, (3,)),
        kept(policy=lambda *args, **params: True),
    ],
    ids=["primitive", "callback", "object", "random state", "policy"],
)
def test_what_is_not_known_has_no_digest(fun: Callable[[Any], Any]) -> None:
    assert order_free_digest(jax.make_jaxpr(fun)(Y), lambda obj: None) is None


def nested_once(fun: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return jax.jit(lambda x: fun(x))


def depth_of(frame: FrameType | None) -> int:
    return 0 if frame is None else 1 + depth_of(frame.f_back)


def test_nesting_that_is_too_deep_has_no_digest() -> None:
    fun: Callable[[Any], Any] = lambda x: x + 1
    for _ in range(40):
        fun = nested_once(fun)
    jaxpr = jax.make_jaxpr(fun)(Y)

    assert order_free_digest(jaxpr, describe) is not None
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(depth_of(sys._getframe()) + 50)
    try:
        found = order_free_digest(jaxpr, describe)
    finally:
        sys.setrecursionlimit(limit)
    assert found is None


def test_sums_have_an_order_unless_one_says_otherwise() -> None:
    def summed(order: Order, x: Any) -> Any:
        terms, total = [jnp.sin(x), jnp.cos(x), x * 2], 0.0
        for n in order:
            total = total + terms[n]
        return total

    jaxprs = [jax.make_jaxpr(functools.partial(summed, order))(X) for order in itertools.permutations(range(3))]
    jaxprs += [jax.make_jaxpr(functools.partial(summed, order))(X) for order in ((0, 0, 1), (0, 1, 1))]
    assert len({order_free_digest(jaxpr, describe) for jaxpr in jaxprs}) == len(jaxprs)
    free = [order_free_digest(jaxpr, describe, sums_in_any_order=True) for jaxpr in jaxprs]
    assert None not in free
    assert len(set(free[:6])) == 1
    assert len(set(free)) == 3


def test_names_of_arguments_and_results_do_not_count() -> None:
    def named(given):
        return {"loss": given["x"] + given["y"], "size": (given["x"] * 2,)}

    def flat(x, y):
        return [x + y, x * 2]

    assert without_order(named, {"x": X, "y": Y}) == without_order(flat, X, Y) != b""


def test_a_rule_that_lowers_to_other_operations_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(rules._platform_specific_lowerings, "cpu", dict(rules._platform_specific_lowerings["cpu"]))
    before = without_order(lambda x: lax.tanh(x) + 1, X)
    assert before == without_order(lambda x: lax.tanh(x) + 1, X)
    mlir.register_lowering(lax.tanh_p, mlir.lower_fun(lax.sin, multiple_results=False), platform="cpu")
    after = without_order(lambda x: lax.tanh(x) + 1, X)
    assert (after[:16] == before[:16], after == before) == (True, False)


TWO_EFFECTS = """
func.func public @main(%arg0: !stablehlo.token {{jax.token = true}}, %arg1: !stablehlo.token {{jax.token = true}}, \
%arg2: tensor<f32>, %arg3: tensor<f32>) -> (tensor<f32>) {{
  %0 = stablehlo.custom_call @calls_back(%{token}, %arg2) : (!stablehlo.token, tensor<f32>) -> !stablehlo.token
  %1 = stablehlo.subtract %{operand}, %arg3 : tensor<f32>
  %2 = stablehlo.case %arg2 : (tensor<f32>) -> !stablehlo.token
  return %{results}, %1 : !stablehlo.token, !stablehlo.token, tensor<f32>
}}
"""


def test_order_of_the_tokens_of_effects_does_not_count() -> None:
    def operations(token: str, results: str, operand: str = "arg2") -> list[str]:
        return evidence._operations(TWO_EFFECTS.format(token=token, results=results, operand=operand))

    assert operations("arg0", "0, %2") == operations("arg1", "2, %0") != operations("arg0", "0, %2", "arg3")
    text = TWO_EFFECTS.format(token="arg0", results="0, %2", operand="arg2")
    swapped = text.replace("subtract %arg2, %arg3", "subtract %arg3, %arg2")
    assert evidence._operations(text) != evidence._operations(swapped)
