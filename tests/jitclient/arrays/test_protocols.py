"""The protocols of Python and numpy, against the same on an array of JAX's own, for every sort of dtype."""

import contextlib
import copy
import enum
import fractions
import io
import math
import operator
import pickle
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jitclient

pytestmark = pytest.mark.usefixtures("daemon")

VALUES: dict[str, Callable[[], Any]] = {
    "float32": lambda: jnp.asarray([[0.5, -1.25, 2.0], [3.0, np.inf, -0.0]], jnp.float32),
    "bfloat16": lambda: jnp.asarray([[0.5, -1.25, 2.0], [3.0, np.inf, -0.0]], jnp.bfloat16),
    "complex64": lambda: jnp.asarray([[1 + 2j, -1j, 3], [0, 2 - 2j, 1]], jnp.complex64),
    "uint8": lambda: jnp.asarray([[1, 2, 250], [0, 3, 255]], jnp.uint8),
    "int8": lambda: jnp.asarray([[1, -2, 100], [0, 3, -128]], jnp.int8),
    "bool": lambda: jnp.asarray([[True, False, True], [False, False, True]]),
    "empty": lambda: jnp.zeros((0, 3), jnp.float32),
    "one": lambda: jnp.ones((1,)),
    "integer": lambda: jnp.uint8(7),
    "weak": lambda: jnp.asarray(2.5),
    "truth": lambda: jnp.asarray(True),
    "keys": lambda: jax.random.split(jax.random.key(3)),
    "key": lambda: jax.random.key(3),
}
QUICK = ("keys",)


class Member(enum.IntEnum):
    TWO = 2


def in_place(sign: str, left: Any, right: Any) -> Any:
    names = {"left": left, "right": right}
    exec(f"left {sign} right", names)
    return names["left"]


def attribute(array: Any) -> Any:
    array.note = "mine"
    return array.note


# Expressions, with semicolons between them.
POWERS = """
    pow(x, 2, 3) ; pow(2, x, 3) ; divmod(x, 0) ; divmod(x, x) ; divmod(x, 'a') ; x // 0 ; x % 0 ; x ** -2 ;
    x ** np.array(2) ; (-2) ** x ; x ** (1 + 2j) ; x << -1 ; x & 1.5 ; -7 % x ; x @ 2 ; x @ [1, 2, 3]
"""
IN_PLACE = """
    in_place('+=', x, 1) ; in_place('-=', x, x) ; in_place('*=', x, 2.5) ; in_place('**=', x, 2) ;
    in_place('@=', x, x.T) ; in_place('|=', x, 1) ; in_place('//=', x, 2) ; in_place('<<=', x, 1) ;
    in_place('+=', np.ones((2, 3)), x) ; in_place('+=', [1], x) ; in_place('+=', 1, x)
"""
COMPARED = """
    x == [1] ; x == 'a' ; x == None ; None == x ; x < None ; x > 'a' ; x == np.ones(3) ; x == {} ;
    np.ones((2, 3)) == x ; x in [1] ; None in x ; 'a' in x ; x == True ; x == x.shape ; x < 2**40
"""
OPERANDS = """
    x + np.float16(1) ; x + np.int8(1) ; x + np.complex64(1) ; x + np.datetime64('2020') ;
    x + np.timedelta64(1, 'D') ; x + Half ; x + np.ma.masked_array([1, 2, 3]) ; x + np.array([1, 2, 3], np.uint16) ;
    x + Member.TWO ; x + float('nan') ; x + 1e300 ; x + () ; x + [1, 2, 3] ; x + True ; x + 1j ; x + -1 ;
    x + np.str_('a')
"""
NUMPY = """
    np.add(x, 1) ; np.sin(x) ; np.add.reduce(x) ; np.maximum(x, 0) ; np.sum(x) ; np.max(x) ; np.shape(x) ;
    np.concatenate([x, x]) ; np.where(x > 1, x, 0) ; np.array([x, x]) ; np.array(x, dtype=np.int16) ;
    np.asarray(x).flags.writeable ; np.array(x).flags.writeable ; np.ravel(x) ; np.clip(x, 0, 1) ;
    np.float32(2) * x ; np.array(2.0) * x ; np.iterable(x) ; np.zeros(9)[x] ; np.result_type(x) ; x.strides
"""
LOOKS = """
    x.item() ; x.item(0) ; x.item(-1) ; x.item(0, 1) ; x.item('a') ; x.tolist() ; x.tobytes() ; bytes(x) ; hash(x) ;
    {x} ; len(x) ; bool(x) ; not x ; x or 1 ; any(x) ; sum(x) ; max(x) ; sorted(x) ; tuple(x) ; list(reversed(x)) ;
    [*zip(x, x)] ; format(x) ; format(x, '.2f') ; format(x, 'd') ; f'{x!r}' ; '%d' % x ; str(x) ; '%d' % x ;
    math.sqrt(x) ; math.floor(x) ; round(x) ; round(x, -1) ; int(x) ; range(x) ; 'abcdefghi'[x] ; [1, 2, 3][x:] ;
    'a' * x ; [1] * x ; chr(x) ; bin(x) ; attribute(x) ; setattr(x, 'shape', 1) ; x.foo
"""
COPIES = """
    copy.copy(x) ; copy.deepcopy([x]) ; pickle.loads(pickle.dumps(x)) ; pickle.loads(pickle.dumps(x, 2))
"""
METHODS = """
    x.astype(x.dtype) ; x.astype(str) ; x.real ; x.imag ; x.mT ; x.conj() ; x.clip() ; x.view() ; x.sum() ;
    x.sum() ; x.max(0) ; x.all() ; x.sort() ; x.repeat(0) ; x.reshape(0) ; x.take([0]) ; x.fill(1) ; x.put(0, 1) ;
    x.cumsum(0) ; x.argmax() ; x.squeeze() ; x.nonzero() ; x.copy() ; x.flatten() ; x.swapaxes(0, -1)
"""
TABLES = (POWERS, IN_PLACE, COMPARED, OPERANDS, NUMPY, LOOKS, COPIES, METHODS)
EXPRESSIONS = [one.strip() for table in TABLES for one in table.split(";")]

NAMES = {
    **{"np": np, "jnp": jnp, "math": math, "operator": operator, "copy": copy, "pickle": pickle, "Member": Member},
    **{"Half": fractions.Fraction(1, 2), "in_place": in_place, "attribute": attribute},
}
TWO_MISTAKES = {"x < 2**40", "x == 2**40"}  # JAX names the one, and the daemon the other
OTHERWISE = {
    "key": TWO_MISTAKES,
    "keys": TWO_MISTAKES,
    "bfloat16": {"bytes(x)"},  # Python's buffers have no such type, and ours can do without
}


def outcome(expression: str, names: Mapping[str, Any]) -> Any:
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        try:
            return described(eval(expression, dict(names)))
        except Exception as error:
            return f"raises {type(error).__name__}"


def described(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [type(value).__name__, *map(described, value)]
    if not isinstance(value, (jax.Array, np.ndarray)):
        return type(value).__name__, repr(value)
    is_key = isinstance(value, jax.Array) and jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key)
    kind = "array of jax" if isinstance(value, jax.Array) else "array of numpy"
    weak = not is_key and getattr(value, "weak_type", False)
    return kind, str(value.dtype), value.shape, weak, repr(np.asarray(jax.random.key_data(value) if is_key else value))


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in VALUES])
def test_is_what_jax_gives(name: str) -> None:
    x = VALUES[name]()
    ours = jitclient.device_put(x)
    differ = {}
    for expression in EXPRESSIONS:
        if expression not in OTHERWISE.get(name, ()):
            outcomes = [outcome(expression, {**NAMES, "x": array}) for array in (x, ours)]
            if outcomes[0] != outcomes[1]:
                differ[expression] = outcomes
    assert not differ
