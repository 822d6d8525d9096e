"""Inputs for public functions of JAX that have no example to take them from, by name, and those that can have none."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.docstring_calls import Call

_Given = tuple[tuple[Any, ...], dict[str, Any]]
_Wrapped = tuple[Callable[[Callable[..., Any]], Callable[..., Any]], Any]


def calls_by_name(name: str, function: Callable[..., Any]) -> Iterator[Call]:
    """The calls of the tables here for that function."""
    if name in _WRAPPED:
        wrap, array = _WRAPPED[name]
        yield Call(wrap(function), name, (array,), {})
    elif name in _GIVEN:
        for args, kwargs in _GIVEN[name]():
            yield Call(function, name, args, kwargs)


def _given(*args: Any, **kwargs: Any) -> _Given:
    return args, kwargs


_MATRIX = jnp.arange(16.0).reshape(4, 4)
_IMAGE = jnp.arange(2 * 3 * 8 * 8.0).reshape(2, 3, 8, 8) % 7
_KERNEL = jnp.arange(4 * 3 * 3 * 3.0).reshape(4, 3, 3, 3) % 5
_POSITIVE = _MATRIX @ _MATRIX.T + 20 * jnp.eye(4)
_VECTOR = jnp.arange(1.0, 5.0)
_NHWC = ("NHWC", "HWIO", "NHWC")


def _mapped(*rest: Any) -> _Wrapped:
    """A collective on each row of an array: the rows are the axis that it needs."""

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        return jax.vmap(lambda row: function(row, "i", *rest), axis_name="i")

    return wrap, _MATRIX


def _named(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function that takes the name of an axis only."""
    return jax.vmap(lambda row: row * function("i"), axis_name="i")


def _sharded(call: Callable[[Callable[..., Any], Any], Any]) -> _Wrapped:
    """A collective between devices, of which there is one here."""

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        mesh = jax.make_mesh((1,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
        spec = jax.sharding.PartitionSpec("i")
        return jax.shard_map(lambda part: call(function, part), mesh=mesh, in_specs=spec, out_specs=spec)

    return wrap, _MATRIX


def _initializer(*rest: Any) -> _Wrapped:
    return lambda function: lambda key: function(*rest)(key, (3, 4)), jax.random.key(0)


def _to_all(function: Callable[..., Any], part: Any) -> Any:
    one = jnp.array([0], jnp.int32)
    return function(part, jnp.zeros_like(part), one, one + 4, one, one + 4, axis_name="i")


_CYCLE = [(0, 1), (1, 2), (2, 3), (3, 0)]

_WRAPPED: dict[str, _Wrapped] = {
    "jax.lax.all_gather": _mapped(),
    "jax.lax.all_to_all": _mapped(0, 0),
    "jax.lax.axis_index": (_named, _MATRIX),
    "jax.lax.axis_size": (_named, _MATRIX),
    "jax.lax.pbroadcast": _sharded(lambda function, part: function(part, "i", 0)),
    "jax.lax.pcast": _sharded(lambda function, part: part * function(jnp.ones(4), "i", to="varying")),
    "jax.lax.pmean": _mapped(),
    "jax.lax.ppermute": _mapped(_CYCLE),
    "jax.lax.precv": _sharded(lambda function, part: function(lax.create_token(), part, "i", [(0, 0)])),
    "jax.lax.psend": _sharded(lambda function, part: function(part, "i", [(0, 0)])),
    "jax.lax.pshuffle": _mapped([1, 2, 3, 0]),
    "jax.lax.psum_scatter": _mapped(),
    "jax.lax.pswapaxes": _mapped(0),
    "jax.lax.ragged_all_to_all": _sharded(_to_all),
    "jax.nn.initializers.kaiming_normal": _initializer(),
    "jax.nn.initializers.kaiming_uniform": _initializer(),
    "jax.nn.initializers.variance_scaling": _initializer(2.0, "fan_in", "normal"),
    "jax.nn.initializers.xavier_normal": _initializer(),
    "jax.nn.initializers.xavier_uniform": _initializer(),
}
"""Functions that need something around them, and what that is called with."""


_PLACES = jnp.array([[0], [2]])
_SCATTERING = lax.ScatterDimensionNumbers((), (0,), (0,))


def _scattered() -> list[_Given]:
    return [_given(_VECTOR, _PLACES, jnp.array([5.0, -6.0]), _SCATTERING)]


def _convolution(*rest: Any, **kwargs: Any) -> Callable[[], list[_Given]]:
    return lambda: [_given(_IMAGE, _KERNEL, *rest, **kwargs)]


def _sum_and_product(left: Any, right: Any) -> Any:
    return left[0] + right[0], left[1] * right[1]


_RAGGED = lax.RaggedDotDimensionNumbers((([1], [1]), ([], [])), [0], [0])

_GIVEN: dict[str, Callable[[], list[_Given]]] = {
    "jax.lax.approx_max_k": lambda: [_given(_MATRIX, 2)],
    "jax.lax.approx_min_k": lambda: [_given(_MATRIX, 2)],
    "jax.lax.argmax": lambda: [_given(_MATRIX, 1, np.int32)],
    "jax.lax.argmin": lambda: [_given(_MATRIX, 0, np.int32)],
    "jax.lax.batch_matmul": lambda: [_given(_IMAGE, _IMAGE)],
    "jax.lax.cond": lambda: [_given(jnp.array(1) > 0, jnp.sin, jnp.cos, _VECTOR)],
    "jax.lax.conv": _convolution((1, 1), "SAME"),
    "jax.lax.conv_general_dilated": lambda: [
        _given(_IMAGE, _KERNEL, (2, 2), "VALID", rhs_dilation=(2, 2)),
        _given(_IMAGE.transpose(0, 2, 3, 1), _KERNEL.transpose(2, 3, 1, 0), (1, 1), "SAME", dimension_numbers=_NHWC),
    ],
    "jax.lax.conv_general_dilated_local": lambda: [
        _given(_IMAGE, jnp.ones((4, 27, 6, 6)), (1, 1), "VALID", (3, 3)),
    ],
    "jax.lax.conv_general_dilated_patches": lambda: [_given(_IMAGE, (3, 3), (1, 1), "VALID")],
    "jax.lax.conv_transpose": lambda: [
        _given(_IMAGE.transpose(0, 2, 3, 1), _KERNEL.transpose(2, 3, 1, 0), (2, 2), "SAME"),
    ],
    "jax.lax.conv_with_general_padding": _convolution((1, 1), ((1, 1), (0, 0)), None, None),
    "jax.lax.custom_linear_solve": lambda: [
        _given(lambda x: _POSITIVE @ x, _VECTOR, lambda _, b: jnp.linalg.solve(_POSITIVE, b), symmetric=True),
    ],
    "jax.lax.custom_root": lambda: [
        _given(
            lambda x: x**2 - 2.0,
            jnp.array(1.0),
            lambda f, x: lax.fori_loop(0, 8, lambda _, y: y - f(y) / (2 * y), x),
            lambda g, y: y / g(1.0),
        ),
    ],
    "jax.lax.dce_sink": lambda: [_given(_VECTOR)],
    "jax.lax.fft": lambda: [_given(_VECTOR + 0j, "FFT", (4,)), _given(_MATRIX, "RFFT", (4,))],
    "jax.lax.fori_loop": lambda: [_given(0, 5, lambda i, x: x * 2 + i, _VECTOR)],
    "jax.lax.imag": lambda: [_given(_VECTOR + 2j)],
    "jax.lax.index_take": lambda: [_given(_MATRIX, (jnp.array([0, 2]),), (0,))],
    "jax.lax.iota": lambda: [_given(np.float32, 6)],
    "jax.lax.platform_dependent": lambda: [_given(_VECTOR, cpu=jnp.sin, default=jnp.cos)],
    "jax.lax.ragged_dot": lambda: [_given(_MATRIX, jnp.ones((2, 4, 3)), jnp.array([1, 3]))],
    "jax.lax.ragged_dot_general": lambda: [
        _given(_MATRIX, jnp.ones((2, 4, 3)), jnp.array([1, 3]), _RAGGED),
    ],
    "jax.lax.real": lambda: [_given(_VECTOR + 2j)],
    "jax.lax.reduce": lambda: [
        _given(_MATRIX, jnp.array(0.0), lax.add, (1,)),
        _given((_MATRIX, _MATRIX), (jnp.array(0.0), jnp.array(1.0)), _sum_and_product, (0,)),
    ],
    "jax.lax.reduce_precision": lambda: [_given(_MATRIX / 3, 5, 3)],
    "jax.lax.rng_bit_generator": lambda: [_given(jnp.arange(4, dtype=jnp.uint32), (2, 3))],
    "jax.lax.rng_uniform": lambda: [_given(jnp.array(0.0), jnp.array(1.0), (3,))],
    "jax.lax.scaled_dot": lambda: [_given(_MATRIX.astype(jnp.bfloat16), _MATRIX.astype(jnp.bfloat16))],
    "jax.lax.scan": lambda: [
        _given(lambda carry, x: (carry + x.sum(), carry * x), jnp.array(0.0), _MATRIX),
        _given(lambda carry, x: (carry * 2, None), _VECTOR, None, length=3),
    ],
    "jax.lax.scatter_apply": lambda: [
        _given(
            _VECTOR, jnp.array([[0], [2]]), jnp.square, lax.ScatterDimensionNumbers((), (0,), (0,)), update_shape=(2,)
        ),
    ],
    "jax.lax.scatter_max": _scattered,
    "jax.lax.scatter_min": _scattered,
    "jax.lax.scatter_mul": _scattered,
    "jax.lax.scatter_sub": _scattered,
    "jax.lax.split": lambda: [_given(_MATRIX, (1, 3), 1)],
    "jax.lax.squeeze": lambda: [_given(_MATRIX[:, :1], (1,))],
    "jax.lax.switch": lambda: [_given(jnp.array(1), [jnp.sin, jnp.cos, jnp.tan], _VECTOR)],
    "jax.lax.while_loop": lambda: [_given(lambda x: x.sum() < 100, lambda x: x * 2, _VECTOR)],
    "jax.lax.with_sharding_constraint": lambda: [
        _given(_VECTOR, jax.sharding.SingleDeviceSharding(jax.devices()[0])),
    ],
    "jax.numpy.array_repr": lambda: [_given(_VECTOR)],
    "jax.numpy.array_str": lambda: [_given(_VECTOR)],
    "jax.numpy.fromiter": lambda: [_given([1.0, 2.0], np.float32)],
    "jax.scipy.optimize.minimize": lambda: [
        _given(lambda x: jnp.sum((x - 1) ** 2 * _VECTOR), jnp.zeros(4), method="BFGS"),
    ],
    "jax.scipy.sparse.linalg.bicgstab": lambda: [_given(_POSITIVE, _VECTOR)],
    "jax.scipy.sparse.linalg.cg": lambda: [_given(_POSITIVE, _VECTOR), _given(lambda x: x * 2, _VECTOR)],
    "jax.scipy.sparse.linalg.gmres": lambda: [_given(_POSITIVE, _VECTOR)],
    "jax.scipy.special.bessel_jn": lambda: [_given(_VECTOR, v=3)],
    "jax.scipy.special.sph_harm_y": lambda: [
        _given(jnp.array([2]), jnp.array([1]), jnp.array([0.3]), jnp.array([0.7]), n_max=3),
    ],
}

_OF_SHAPES = "takes and gives shapes or dimension numbers, and no array"
_OF_DTYPES = "takes or gives dtypes, and no array"
_OF_PRINTING = "is about how this process prints"
_OF_TOKENS = "gives a token, and no array"
_OF_FILES = "reads or writes a file"

WITHOUT_ARRAYS: dict[str, str] = {
    "jax.lax.ConvGeneralDilatedDimensionNumbers": _OF_SHAPES,
    "jax.lax.PrecisionLike": "is a type",
    "jax.lax.after_all": _OF_TOKENS,
    "jax.lax.broadcast_shapes": _OF_SHAPES,
    "jax.lax.conv_dimension_numbers": _OF_SHAPES,
    "jax.lax.conv_general_permutations": _OF_SHAPES,
    "jax.lax.conv_general_shape_tuple": _OF_SHAPES,
    "jax.lax.conv_shape_tuple": _OF_SHAPES,
    "jax.lax.conv_transpose_shape_tuple": _OF_SHAPES,
    "jax.lax.create_token": _OF_TOKENS,
    "jax.lax.dtype": _OF_DTYPES,
    "jax.lax.padtype_to_pads": _OF_SHAPES,
    "jax.lax.reduce_window_shape_tuple": _OF_SHAPES,
    "jax.lax.shape_as_value": _OF_SHAPES,
    "jax.nn.get_scaled_dot_general_config": "gives the configuration of another function",
    "jax.numpy.can_cast": _OF_DTYPES,
    "jax.numpy.fromfile": _OF_FILES,
    "jax.numpy.get_printoptions": _OF_PRINTING,
    "jax.numpy.isdtype": _OF_DTYPES,
    "jax.numpy.iterable": "gives a bool, of any object",
    "jax.numpy.printoptions": _OF_PRINTING,
    "jax.numpy.save": _OF_FILES,
    "jax.numpy.savez": _OF_FILES,
    "jax.numpy.set_printoptions": _OF_PRINTING,
    "jax.random.key_dtype": _OF_DTYPES,
    "jax.random.key_impl": "gives the name of an implementation",
}
"""Functions that have nothing to do with `jit`, with the reason."""
