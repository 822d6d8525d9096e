"""Every operation on an array of the daemon's against the same expression on an array of JAX's own."""

import copy
import operator
import re
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import jitclient

pytestmark = pytest.mark.usefixtures("daemon")

F32 = np.array([[0.5, -1.25, 2.0], [3.0, np.inf, -0.0]], np.float32)

VALUES: dict[str, Callable[[], Any]] = {
    "f32": lambda: jnp.asarray(F32),
    "i32": lambda: jnp.asarray([[3, -1, 2], [0, 7, -5]], jnp.int32),
    "bool": lambda: jnp.asarray([[True, False, True], [False, False, True]]),
    "c64": lambda: jnp.asarray([[1 + 2j, -1j, 3], [0, 2 - 2j, 1]], jnp.complex64),
    "bf16": lambda: jnp.asarray(F32.astype(ml_dtypes.bfloat16)),
    "u8": lambda: jnp.asarray([[1, 2, 250], [0, 3, 255]], jnp.uint8),
    "empty": lambda: jnp.zeros((0, 3), jnp.float32),
    "scalar": lambda: jnp.float32(2.5),
    "integer": lambda: jnp.int32(3),
    "weak": lambda: jnp.asarray(2.5),
    "weak integer": lambda: jnp.asarray(-3),
}
"""An array for each dtype and each special shape."""

ARITHMETIC = [
    f"{left} {sign} {right}"
    for sign in ("+", "-", "*", "/", "//", "%", "**", "==", "<", "&", "<<")
    for left, right in (("x", "x"), ("x", "2"), ("3", "x"), ("x", "1.5"), ("x", "u8"))
] + [
    *("x | x", "x ^ 1", "x >> 1", "1 >> x", "x != x", "x <= 2", "x > 2", "x >= x", "x & True", "x + True", "x + 1j"),
    *("-x", "+x", "abs(x)", "~x", "round(x)", "round(x, 1)", "divmod(x, 2)", "divmod(7, x)", "x + x[..., :1]"),
    *("x @ x.T", "x ** -1", "x ** 0", "x ** True", "x ** np.int32(3)", "x ** np.float32(0.5)", "2.0 ** x", "1j * x"),
    *("x + np.float64(1)", "np.float64(1) + x", "x * np.ones((2, 3))", "np.ones((2, 3), np.int8) * x", "x - F32"),
    *("x == None", "x != 'a'", "x + 300", "x - 300", "x * jnp.ones(3)", "x + weak", "x * i32", "x ** i32"),
]

METHODS = [
    *("x.all()", "x.any(axis=0)", "x.argmax()", "x.argmin(axis=1)", "x.argmax(axis=0, keepdims=True)", "x.argsort()"),
    *("x.argpartition(1)", "x.astype('float16')", "x.astype(int)", "x.astype(float)", "x.astype(jnp.bfloat16)"),
    *("x.astype(np.dtype('uint8'))", "x.astype(bool)", "x.clip(0, 2)", "x.clip(min=1)", "x.clip(-1.5, x)", "x.conj()"),
    *("x.conjugate()", "x.copy()", "x.cumsum()", "x.cumsum(axis=0, dtype='float32')", "x.cumprod(axis=1)"),
    *("x.diagonal()", "x.dot(x.T)", "x.dot(2)", "x.flatten()", "x.flatten('F')", "x.max()", "x.min(axis=0)"),
    *("x.max(axis=1, initial=1)", "x.max(initial=0, where=x == x)", "x.mean()", "x.mean(axis=(0, 1))"),
    *("x.mean(1, keepdims=True)", "x.prod()", "x.prod(axis=0)", "x.ptp()", "x.ravel()", "x.ravel(order='F')"),
    *("x.repeat(2)", "x.repeat(2, axis=0)", "x.repeat(np.array([2, 0, 1]), axis=1)", "x.repeat(u8[0, :1], axis=1)"),
    *("x.reshape(3, 2)", "x.reshape(-1)", "x.reshape((6,), order='F')", "x.reshape(np.int64(3), -1)", "x.round()"),
    *("x.round(1)", "x.searchsorted(2)", "x.ravel().searchsorted(x)", "x.sort()", "x.sort(axis=0, descending=True)"),
    *("x.squeeze()", "x[:1].squeeze(0)", "x.std()", "x.std(axis=0, ddof=1)", "x.sum()", "x.sum(axis=-1)"),
    *("x.sum(axis=np.int32(0))", "x.sum(axis=integer - 3)", "x.sum(dtype='int32')", "x.sum(where=x > 1)"),
    *("x.sum(initial=5)", "x.swapaxes(0, 1)", "x.take(1)", "x.take(np.array([[1, 0]]), axis=1)", "x.take(99)"),
    *("x.take(i32, mode='clip')", "x.trace()", "x.transpose()", "x.transpose(1, 0)", "x.transpose((1, 0))", "x.var()"),
    *("x.view('uint8')", "x.view('int32')", "x.nonzero()", "x.nonzero(size=2, fill_value=9)", "x.byteswap()"),
    *("x.compress(np.array([True, False]), axis=0)", "x.compress(x.ravel() > 1)", "x.choose([x, x])", "u8.choose(x)"),
    *("x.T", "x.mT", "x.real", "x.imag", "x.sum(axis=[0])", "x.sum(axis=0, keepdims=True)", "x.nbytes", "x.itemsize"),
    *("2 in x.ravel()", "x[0] in x.ravel()"),
]

INDICES = [
    *(
        "0",
        "1",
        "-1",
        "5",
        "-9",
        "2**40",
        "...",
        "None",
        "(0, 1)",
        "(1, -1)",
        "(..., 0)",
        "(0, ...)",
        "(None, 1, None)",
    ),
    *("slice(None)", "slice(1, None)", "slice(None, -1)", "slice(None, None, 2)", "slice(None, None, -1)"),
    *("slice(5, 1, -2)", "slice(9, 12)", "slice(1, 1)", "slice(-1, -5, -1)", "(slice(1), slice(1, 3))"),
    *("(slice(None), None, slice(0, 2))", "(0, slice(None, None, -2))", "np.int64(1)", "np.uint8(1)", "True", "False"),
    *("np.array([1, 0, 1])", "np.array([], int)", "(np.array([0, 1]), np.array([2, 0]))", "(slice(1), np.array([5]))"),
    *("(0, np.array([1, 2]))", "(np.array([0]), slice(0, 2))", "(np.array([0]), None, np.array([1]))"),
    *("np.array([True, False])", "np.ones((2, 3), bool)", "(slice(None), np.array([True, False, True]))"),
    *("(..., np.array([True, False, True]))", "jnp.array([0, -1])", "x == x", "x > x", "u8 > 2"),
    *(
        "integer - 3",
        "(integer - 2, slice(None))",
        "u8",
        "i32",
        "()",
        "(integer - 3, integer - 2)",
        "slice(integer - 2, None)",
    ),
]

WRONG_INDICES = [
    *("'a'", "1.5", "[0, 1]", "([0, 1], 0)", "(0, 0, 0)", "(..., ...)", "slice(None, None, 0)", "slice('a', None)"),
    *("scalar", "np.array([1.5])", "np.array([True] * 5)", "(0, 0, None, 0)", "object()", "{}", "slice(1.5, None)"),
]

UPDATES = [
    f"x.at[{index}].{update}"
    for index, update in [
        *(("0", "set(7)"), ("1", "add(x[0])"), ("-1", "multiply(2)"), ("9", "set(1)"), ("(0, 1)", "set(x[1, 1])")),
        *(("slice(0, 1)", "set(1.5)"), ("slice(0, 2)", "add(1)"), ("slice(None, None, 2)", "min(1)")),
        *(("(slice(None), slice(1, 3))", "max(2)"), ("(1, slice(0, 2))", "subtract(3)"), ("...", "divide(2)")),
        *(("np.array([0, 0])", "add(1)"), ("np.array([1, 7])", "set(5, mode='drop')"), ("x > 1", "set(0)")),
        *(("np.array([0])", "power(2)"), ("0", "mul(3)"), ("0", "apply(jnp.negative)"), ("1", "get()")),
        *(
            ("9", "get(mode='fill', fill_value=4)"),
            ("9", "get(mode='clip')"),
            ("-1", "set(2, wrap_negative_indices=False)"),
        ),
        *(("np.array([0, 1])", "add(x, indices_are_sorted=True, unique_indices=True)"), ("None", "set(3)")),
        *(("0", "set(values=4)"), ("(np.array([0, 1]), slice(1, 3))", "set(9)"), ("True", "set(1)"), ("0", "add(300)")),
    ]
]

LOOKS = [
    *("x.shape", "x.dtype", "x.ndim", "x.size", "x.weak_type", "x.is_deleted()", "x.tolist()", "x.tobytes()", "str(x)"),
    *("repr(x)", "x.item()", "x.item(1)", "bool(x)", "int(x)", "float(x)", "complex(x)", "len(x)", "operator.index(x)"),
    *("f'{x}'", "f'{x:.2f}'", "hex(x)", "oct(x)", "[4, 5, 6, 7][x]", "np.asarray(x)", "np.asarray(x, np.float64)"),
    *("list(x)", "[*x][0]", "dict(a=x)['a']", "range(x)", "x.on_device_size_in_bytes()", "x.is_fully_addressable"),
    *(
        "x.is_fully_replicated",
        "x.committed",
        "x.devices()",
        "x.sharding",
        "x.device",
        "x.addressable_data(0)",
        "x.is_ready()",
    ),
    *("x.__array_priority__", "x.__array_namespace__()", "x.__dlpack_device__()", "np.from_dlpack(x)", "x.aval"),
    *("isinstance(x, jax.Array)", "x.addressable_shards[0].data", "x.block_until_ready()", "x.copy_to_host_async()"),
    *("jnp.sin(x)", "jnp.result_type(x, 1)", "x.to_device(jax.devices()[0])", "x.global_shards[0].index"),
]

MISTAKES = [
    *("x + 'a'", "'a' + x", "x + None", "x + [1]", "[1] + x", "(1, 2) * x", "x * [2]", "x == [1]", "x != (1,)"),
    *("x == {}", "x < 'a'", "x @ 'a'", "x + object()", "x + np.array(['a'])", "hash(x)", "{x: 1}", "x.foo", "x.flat"),
    *("x + 2**40", "x + jnp.ones(7)", "x @ jnp.ones((7, 7))", "x.reshape(7)", "x.reshape('a')", "x.sum(axis=7)"),
    *("x.sum(axis='a')", "x.sum(nonsense=1)", "x.transpose(0)", "x.astype('nonsense')", "x.dot('a')", "x.take('a')"),
    *("x.clip('a')", "operator.setitem(x, 0, 1)", "operator.delitem(x, 0)", "'a' in x", "x.compress([True])"),
    *("x.compress(np.array([True] * 9))", "x.at[0].set('a')", "x.at[0].foo(1)", "x.at['a'].set(1)", "x.at[0] + 1"),
    *("x.repeat(np.array([1, 2]), axis=1)", "x.repeat('a')", "x.sum(out=3)", "x.view('nonsense')", "x.squeeze(0)"),
    *("x.at[{}].set(1)", "x.at[0].set(1, mode={})", "x.astype({})"),  # constants without a hash
    *("x.searchsorted(x)", "x.item(99)", "x.choose([])", "x.sum(0, 1, 2, 3, 4, 5, 6, 7, 8)", "iter(x[()][0][0])"),
]

KEYS = [
    *("x.shape", "x.dtype", "x[0]", "x[1:]", "x[None]", "x.reshape(2, 1)", "x.T", "x == x", "x != x[::-1]", "x.copy()"),
    *("x.ravel()", "x.size", "len(x)", "list(x)", "x.at[0].set(x[1])", "x[np.array([1, 0])]", "x.ndim"),
    *("jax.random.bits(x[0])", "jax.random.key_data(x)", "jax.vmap(jax.random.bits)(x)", "jax.random.split(x[0])"),
    *("repr(x)", "str(x)", "jax.random.key_impl(x)", "x.take(np.array([1]))", "isinstance(x, jax.Array)"),
]

WRONG_WITH_KEYS = ["x + 1", "-x", "x < x", "float(x[0])", "np.asarray(x)", "hash(x)"]

IN_OTHER_WORDS = {
    *("x[np.array([1.5])]", "x[object()]", "'a' + x", "x + np.array(['a'])", "x + 2**40", "x.dot('a')", "x.take('a')"),
    *("x.clip('a')", "operator.setitem(x, 0, 1)", "x.at[0].foo(1)", "x.at[0] + 1", "x.reshape(np.int64(3), -1)"),
    *("float(x[0])", "np.asarray(x)"),
}
"""Where the message names JAX's own functions and classes, addresses, or the dtype before it was narrowed."""

IN_ONE_PROGRAM = {"x.var()", "x.std()", "x.var(axis=0)", "x.std(axis=0, ddof=1)", "x.std(axis=0)"}
"""Where eager JAX runs several programs, and a sum may round differently in the last bit: these are as under jit."""


def outcome(expression: str, names: dict[str, Any]) -> tuple[Any, BaseException | None]:
    try:
        return eval(expression, names), None
    except Exception as error:
        return None, error


def check(expression: str, x: Any, others: dict[str, Any]) -> None:
    """Evaluates an expression twice: on arrays of JAX's, and with each of them on the daemon."""
    modules = {"jax": jax, "jnp": jnp, "np": np, "operator": operator, "F32": F32}
    theirs, their_error = outcome(expression, {**modules, **others, "x": x})
    if expression in IN_ONE_PROGRAM and their_error is None:
        theirs = jax.jit(lambda x: eval(expression, {"x": x}))(x)
    ours, our_error = outcome(expression, {**modules, **jitclient.device_put({**others, "x": x})})
    if their_error is None:
        if our_error is not None:
            raise AssertionError(f"{expression} gives {theirs!r}") from our_error
        same(ours, theirs, expression)
        return
    assert our_error is not None, f"{expression} gives {ours!r} where JAX raises {their_error!r}"
    assert type(our_error) is type(their_error), f"{expression}: {our_error!r} and not {their_error!r}"
    if expression not in IN_OTHER_WORDS:
        assert text_of(our_error) == text_of(their_error), expression
    assert handled(our_error) in ("", handled(their_error)), (
        f"{expression}: while {our_error.__context__!r} was handled"
    )


def handled(error: BaseException) -> str:
    """Return the type of the error that a traceback shows above another one; empty if there is none."""
    shown = None if error.__suppress_context__ else error.__context__
    return type(shown).__name__ if shown else ""


def text_of(error: BaseException) -> str:
    text = re.sub(r"'[\w.]*(Array|ArrayImpl)'", "'Array'", str(error))
    # jax prints a set here, in an order of the process's own
    return re.sub(r"(?<=subtypes of )[\w, ]+", lambda found: ", ".join(sorted(found[0].split(", "))), text)


def same(ours: Any, theirs: Any, expression: str) -> None:
    if isinstance(theirs, (tuple, list)):
        assert type(ours) is type(theirs), expression
        assert len(ours) == len(theirs), expression
        for mine, yours in zip(ours, theirs, strict=True):
            same(mine, yours, expression)
    elif isinstance(theirs, (jax.Array, np.ndarray)):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype), expression
        assert getattr(ours, "weak_type", False) == getattr(theirs, "weak_type", False), expression
        assert content(ours) == content(theirs), f"{expression} gives {ours!r} and not {theirs!r}"
    else:
        assert type(ours) is type(theirs), expression
        assert repr(ours) == repr(theirs), expression


def content(array: Any) -> bytes:
    is_key = isinstance(array, jax.Array) and jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(array) if is_key else array).tobytes()


@pytest.fixture(scope="module")
def others() -> dict[str, Any]:
    return {name: VALUES[name]() for name in ("u8", "i32", "weak", "scalar", "integer")}


def check_all(expressions: list[str], x: Any, others: dict[str, Any]) -> None:
    """Checks all of them before it fails, so that one failure hides no other."""
    failures = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # JAX warns where the operation is traced: here, or on the daemon
        for expression in expressions:
            try:
                check(expression, x, others)
            except AssertionError as error:
                failures.append(f"{error}; {error.__cause__!r}" if error.__cause__ else str(error))
    assert not failures, "\n".join(failures)


GROUPS = {
    "arithmetic": ARITHMETIC,
    "methods": METHODS,
    "indices": [f"x[{index}]" for index in INDICES + WRONG_INDICES],
    "updates": UPDATES,
    "looks": LOOKS,
    "mistakes": MISTAKES,
}


SLOW = pytest.mark.slow


@pytest.mark.parametrize("third", [0, pytest.param(1, marks=SLOW), pytest.param(2, marks=SLOW)])
@pytest.mark.parametrize("value", ["f32", *(pytest.param(value, marks=SLOW) for value in VALUES if value != "f32")])
@pytest.mark.parametrize("group", GROUPS)
def test_everything_gives_what_jax_gives(group: str, value: str, third: int, others: dict[str, Any]) -> None:
    check_all(GROUPS[group][third::3], VALUES[value](), others)


def test_typed_keys_too(others: dict[str, Any]) -> None:
    check_all(KEYS + WRONG_WITH_KEYS, jax.random.split(jax.random.key(3)), others)


@pytest.mark.slow
@pytest.mark.parametrize("value", ["f32", "i32"])
def test_64_bits_too(value: str) -> None:
    with jax.enable_x64(True):
        wide = VALUES[value]().astype({"f32": "float64", "i32": "int64"}[value])
        check_all(ARITHMETIC[::3] + METHODS[::3] + UPDATES[::3], wide, {name: make() for name, make in VALUES.items()})


def test_the_table_is_complete() -> None:
    """An array of ours has every attribute of `jax.Array`."""
    theirs = {name for name in dir(jnp.ones(2)) if not name.startswith("_")}
    buffers = {"device_buffer", "device_buffers", "unsafe_buffer_pointer", "unsafe_raw_buffer"}
    internal = {"clone", "traceback", "platform"}
    assert theirs - buffers - internal <= set(dir(jitclient.Array))


@pytest.mark.parametrize("expression", ["x[n]", "x[n : n + 2]", "x.at[n].set(0.5)", "x.at[n : n + 2].add(1)", "x + n"])
def test_one_program_for_every_number(expression: str, counts: Callable[..., dict[str, Any]]) -> None:
    x = jitclient.device_put(np.arange(7, dtype=np.float16))
    eval(expression, {"x": x, "n": 0})
    before = counts()["misses"]
    for n in range(1, 5):
        eval(expression, {"x": x, "n": n})
    assert counts()["misses"] == before


def test_results_stay_on_the_daemon() -> None:
    x = jitclient.device_put(np.linspace(-1, 1, 23, dtype=np.float32))  # no other test's, whose programs have moved in
    for result in (x + 1, 1 - x, x[0], x[0:1], x[x > 0], x.sum(), x.T, x.at[0].set(1), *x, x == x, *divmod(x, 2)):
        assert type(result) is jitclient.Array


def test_iterating_asks_once_for_a_hundred_rows(counts: Callable[..., dict[str, Any]]) -> None:
    x = jitclient.device_put(np.arange(250))
    assert [int(row) for row in x] == list(range(250))
    before = counts()["calls"]
    assert [int(row) for row in x] == list(range(250))
    assert counts()["calls"] - before == 6  # three parts, each taken and taken apart


def test_constants_that_are_equal_and_not_the_same_are_told_apart() -> None:
    x = jitclient.device_put(np.array([[1.0, 2.0]], np.float32))
    assert x.sum(axis=1).shape == (1,)
    with pytest.raises(TypeError):
        x.sum(axis=1.0)
    filled = [x.at[9].get(mode="fill", fill_value=value) for value in (0.0, -0.0)]
    assert [np.signbit(np.asarray(row)).any() for row in filled] == [False, True]


def test_a_program_without_jax_does_the_same(run_script: Callable[..., Any]) -> None:
    done = run_script(
        """
        import json, sys, numpy as np, jitclient
        x = jitclient.device_put(np.arange(6, dtype=np.float32).reshape(2, 3))
        y = (x.at[1].set(0.5) + x.T[0][:2].sum() - 1) @ np.ones((3, 1))
        assert type(y) is jitclient.Array and x[x > 2].shape == (3,) and x.astype(np.float16).dtype == np.float16
        errors, loaded = [], "jax" in sys.modules
        for mistake in ("x + [1]", "x['a']", "x[0, 0, 0]", "x.foo", "x[np.ones(7, bool)]", "x.compress([True])"):
            try:
                eval(mistake)
            except Exception as error:
                errors.append(type(error).__name__)
        print(json.dumps([y.tolist(), errors, loaded]))
        """,
        env={"JITSERVER_VERIFY": "off"},  # a trace would import jax
    )
    errors = ["TypeError", "TypeError", "IndexError", "AttributeError", "IndexError", "TypeError"]
    assert done == [[[9.0], [7.5]], errors, False]


def test_a_copy_outlives_the_array() -> None:
    x = jitclient.device_put(F32)
    twin = copy.copy(x)
    x.delete()
    assert x.is_deleted()
    assert content(twin) == F32.tobytes()
    with pytest.raises(RuntimeError, match=re.escape("Array has been deleted with shape=float32[2,3].")):
        x + 1


def test_many_shapes_earn_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in range(1, 9):
            jitclient.device_put(np.zeros(n, np.int8)) + 1


def test_what_was_fetched_outlives_its_daemon(own: Any) -> None:
    with own.serving() as daemon:
        done = own.run(
            f"""
            import json, os, signal, warnings
            import numpy as np, jitclient
            x = jitclient.device_put(np.ones(3, np.float32))
            y = jitclient.device_put(np.ones(3, np.float32))
            np.asarray(x)
            os.kill({daemon.pid}, signal.SIGKILL)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                results = [(x + n).tolist() for n in range(2)]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = [x.sum(axis=0), x[::2], x[np.array([0]), None], x.at[0].set(5, mode="drop"), x.astype("int8")]
            try:
                y + 1
            except jitclient.ArrayLost as error:
                lost = str(error)
            print(json.dumps([results, [one.tolist() for one in found], [str(w.message) for w in caught], lost]))
            """,
            JITSERVER_FALLBACK="local",
        )
    results, with_constants, (warning,), lost = done
    assert results == [[1, 1, 1], [2, 2, 2]]
    assert with_constants == [3, [1, 1], [[1]], [5, 1, 1], [1, 1, 1]]
    assert warning.startswith("add runs in this process, on the cpu: ")
    assert lost.startswith("Array with shape=float32[3] was lost with its daemon")


def test_warnings_of_jax_arrive(counts: Callable[..., dict[str, Any]]) -> None:
    size = counts()["entries"] + 100  # new to the daemon
    with pytest.warns(UserWarning, match="float64 requested in astype is not available"):
        jitclient.device_put(np.zeros(size, np.float32)).astype(np.float64)


def test_where_an_operation_of_ours_fails_jax_does_it(own: Any) -> None:
    with own.serving():
        found = own.run(
            """
            import json, warnings
            import jax, numpy as np, jitclient
            from jitclient.jaxside.static_leaves import StaticLeaf

            x = jitclient.device_put(np.arange(4, dtype=np.float32))
            StaticLeaf.__init__ = lambda self, value: None
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                results = [x + 1, x.sum(axis=0), x[1:3], x[np.array([0, 3])], x.at[0].set(5), 2 ** x, x ** 2, *x]
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # a mistake of the user's is no failure of ours
                try:
                    x.reshape(3)
                except Exception as error:
                    wrong = type(error).__name__, str(error)
            print(json.dumps([[one.tolist() for one in results], wrong, [str(each.message) for each in caught]]))
            """,
            JITSERVER_FALLBACK="local",
        )
    results, wrong, notes = found
    plain = jnp.arange(4, dtype=jnp.float32)
    assert results[:5] == [[1, 2, 3, 4], 6, [1, 2], [0, 3], [5, 1, 2, 3]]
    assert results[5:] == [[1, 2, 4, 8], [0, 1, 4, 9], 0, 1, 2, 3]
    with pytest.raises(TypeError) as raised:
        plain.reshape(3)
    assert wrong == ["TypeError", str(raised.value)]
    assert notes[0].startswith("add runs in this process: jitserver failed (AttributeError: ")
