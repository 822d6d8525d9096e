"""Other libraries' uses of an array: the same with one on the daemon as with one of JAX's own."""

import collections
import contextlib
import csv
import dataclasses
import functools
import hashlib
import importlib
import io
import itertools
import json
import logging
import numbers
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jitclient

from ...sampled import sampled

pytestmark = pytest.mark.usefixtures("daemon")

ARRAYS: dict[str, Callable[[], Any]] = {
    "matrix": lambda: jnp.asarray([[0.5, -1.25, 2.0], [3.0, 1.0, -0.5]], jnp.float32),
    "vector": lambda: jnp.arange(1, 6, dtype=jnp.float32),
    "integer": lambda: jnp.int32(3),
    "scalar": lambda: jnp.asarray(2.5),
    "indices": lambda: jnp.arange(4),
    "bytes": lambda: jnp.arange(12, dtype=jnp.uint8).reshape(2, 2, 3),
    "bfloat16": lambda: jnp.ones((2, 3), jnp.bfloat16),
    "truths": lambda: jnp.asarray([True, False, True]),
    "empty": lambda: jnp.zeros((0, 3)),
}


# ---- what the rows call


class Pair(NamedTuple):
    left: Any
    right: int


@dataclasses.dataclass
class Record:
    field: Any
    count: int = 1


@functools.singledispatch
def kind_of(value: object) -> str:
    return "object"


kind_of.register(jax.Array, lambda value: "array of jax")
kind_of.register(np.ndarray, lambda value: "array of numpy")


@functools.singledispatch
def protocol_of(value: object) -> str:
    return "object"


protocol_of.register(numbers.Number, lambda value: "number")
protocol_of.register(collections.abc.Sequence, lambda value: "sequence")
protocol_of.register(collections.abc.Iterable, lambda value: "iterable")


def matched(value: Any) -> Any:
    match value:
        case jax.Array(shape=(), dtype=dtype):
            return dtype
        case jax.Array(shape=(length,)):
            return length
        case jax.Array():
            return "array"
        case _:
            return None


class ArrayEncoder(json.JSONEncoder):
    def default(self, o: Any) -> Any:
        if isinstance(o, (jax.Array, np.ndarray)):
            return o.tolist()
        return super().default(o)


def logged(value: Any) -> str:
    stream = io.StringIO()
    logger = logging.Logger("guests", logging.INFO)
    logger.addHandler(logging.StreamHandler(stream))
    logger.info("%s and %r", value, value)
    return stream.getvalue()


def in_csv(value: Any) -> str:
    stream = io.StringIO()
    csv.writer(stream).writerow([1, value])
    return stream.getvalue()


def through_file(save: Callable[..., Any], load: Callable[..., Any]) -> Any:
    file = io.BytesIO()
    save(file)
    file.seek(0)
    found = load(file)
    return dict(found) if isinstance(found, Mapping) else found


def through_leaves(eqx: Any, value: Any) -> Any:
    like = eqx.filter_eval_shape(lambda: [value, jax.nn.relu])
    return through_file(
        lambda file: eqx.tree_serialise_leaves(file, [value, jax.nn.relu]),
        lambda file: eqx.tree_deserialise_leaves(file, like),
    )


def added_to_zeros(value: Any) -> Any:
    zeros = np.zeros((2, *value.shape), np.float32)
    zeros[0] = value
    zeros[1] += value
    return zeros


def drawn(draw: Callable[..., Any], *values: Any) -> str:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2, 2), dpi=40)
    draw(figure.subplots(), *values)
    with io.BytesIO() as file:
        figure.savefig(file, format="rgba")
        return hashlib.sha256(file.getvalue()).hexdigest()


def with_columns(pd: Any, value: Any) -> Any:
    frame = pd.DataFrame({"a": range(len(value))})
    frame["b"] = value
    frame.loc[0, "b"] = value[0]
    frame["c"] = frame["b"] * value
    return frame


def progress(tqdm: Any, value: Any) -> str:
    with tqdm.tqdm([1], file=io.StringIO()) as bar:
        bar.set_postfix(loss=value)
        return str(bar.postfix)


# ---- one table for each library: its imports, and expressions of `x` with semicolons between them


class Table(NamedTuple):
    imports: str
    rows: str


TABLES: dict[str, Table] = {
    "printing": Table(
        "pprint reprlib string types",
        """
        repr([x]) ; str((x,)) ; repr({'a': x}) ; repr(Record(x)) ; repr(Pair(x, 1)) ; f'{[x]} {x!s:>30}' ;
        f'{x:.3f}' ; f'{x:10.2e}' ; f'{x:d}' ; f'{x:>9}' ; f'{x:%}' ; '%s %r' % (x, x) ; '%.3f' % x ; '%d' % x ;
        '{:.2f} {!r}'.format(x, x) ; string.Template('$a').substitute(a=x) ; print(x) ; print([x], {'a': x}) ;
        repr(types.SimpleNamespace(a=x)) ; repr(collections.deque([x])) ; repr(Exception(x)) ; logged(x) ; in_csv(x) ;
        pprint.pformat({'a': [x, (x,)], 'r': Record(x)}, width=30) ; reprlib.repr([x])
        """,
    ),
    "types": Table(
        "typing numbers jax.typing chex jaxtyping beartype.door equinox functools",
        """
        issubclass(type(x), jax.Array) ; issubclass(x.__class__, jax.Array) ; isinstance(x, jax.Array | int) ;
        isinstance(x, jax.typing.ArrayLike) ; isinstance(x, chex.Array) ; isinstance(x, np.ndarray) ;
        isinstance(x, jaxtyping.Float[jax.Array, '...']) ; isinstance(x, jaxtyping.Float[jaxtyping.Array, 'a b']) ;
        isinstance(x, numbers.Number) ; isinstance(x, typing.SupportsFloat) ; isinstance(x, typing.SupportsIndex) ;
        isinstance(x, collections.abc.Iterable) ; isinstance(x, collections.abc.Sequence) ;
        isinstance(x, collections.abc.Hashable) ; isinstance(x, collections.abc.Sized) ; callable(x) ;
        beartype.door.is_bearable(x, jax.Array) ; beartype.door.is_bearable([x], list[jax.typing.ArrayLike]) ;
        kind_of(x) ; kind_of.dispatch(type(x)) is kind_of.dispatch(jax.Array) ; protocol_of(x) ; matched(x) ;
        equinox.is_array(x) ; equinox.is_inexact_array_like(x) ; 'block_until_ready' in dir(x) ;
        x.__class__.__name__ < 'B' ; 'jax' in str(type(x)) ; x.__class__.__module__ ; 'Array' in x.__class__.__name__
        """,
    ),
    "python": Table(
        "copy math statistics struct array random operator heapq decimal datetime",
        """
        math.sqrt(x) ; math.floor(x) ; math.ceil(x) ; math.isclose(x, 3) ; math.comb(5, x) ; math.prod([x, x]) ;
        math.trunc(x) ; statistics.fmean([x, x]) ; statistics.mean([x]) ; statistics.median([x, x + 1]) ;
        struct.pack('<f', x) ; struct.pack('<i', x) ; array.array('d', [x, x]) ; [10, 20, 30, 40][x] ; 'abcd'[x:] ;
        range(x) ; list(range(0, 10, x)) ; [0] * x ; list(itertools.islice(range(9), x)) ; slice(x).indices(9) ;
        round(x) ; round(x, 1) ; abs(x) ; sum([x, x]) ; max([x, x + 1]) ; max(x, 0) ; sum(x) ; max(x) ; sorted(x) ;
        0 < x < 5 ; x == 3 ; x in [1, 3] ; x is None ; bool(x) ; 1 if x else 2 ; {1: 2}.get(x) ; hash(x) ; {x} ;
        heapq.nlargest(1, [x, x + 1]) ; functools.reduce(operator.add, [x, x]) ; operator.index(x) ; float(x) ;
        random.Random(0).uniform(0, x) ; decimal.Decimal(x) ; datetime.timedelta(seconds=x) ; dict(enumerate(x)) ;
        [v.item() for v in x] ; [*x] ; list(zip(x, x)) ; list(reversed(x)) ; x.item() ; x.tolist() ; int(x) ;
        complex(x) ; copy.copy(x) ; copy.deepcopy({'a': [x]}) ; dataclasses.asdict(Record(x)) ;
        dataclasses.replace(Record(x), count=2)
        """,
    ),
    "buffers": Table(
        "base64 zlib hashlib",
        """
        memoryview(x).tobytes() ; bytearray(x) ; hashlib.sha256(x).hexdigest() ; base64.b64encode(x) ; zlib.crc32(x) ;
        io.BytesIO(x).getvalue() ; b''.join([x]) ; np.frombuffer(x, np.uint8) ; np.bincount(x) ;
        np.take(np.arange(9), x)
        """,
    ),
    "encoders": Table(
        "pickle cloudpickle json msgspec",
        """
        [pickle.loads(pickle.dumps({'a': [x]}, n)) for n in range(6)] ; cloudpickle.loads(cloudpickle.dumps(x)) ;
        json.dumps(x) ; json.dumps({'a': [x]}, cls=ArrayEncoder) ; json.dumps(x, default=float) ; json.dumps({x: 1}) ;
        json.dumps(x, default=lambda o: o.tolist()) ; json.dumps(x, default=lambda o: o.item()) ;
        msgspec.json.encode(x) ; msgspec.json.encode(x, enc_hook=lambda o: o.tolist())
        """,
    ),
    "simplejson": Table("simplejson", "simplejson.dumps(x) ; simplejson.dumps(x, iterable_as_array=True)"),
    "orjson": Table(
        "orjson",
        """
        orjson.dumps(x) ; orjson.dumps(x, option=orjson.OPT_SERIALIZE_NUMPY) ;
        orjson.dumps(x, option=orjson.OPT_SERIALIZE_NUMPY, default=np.asarray)
        """,
    ),
    "numpy": Table(
        "numpy.testing",
        """
        np.asarray(x) ; np.array([x, x]) ; np.asarray(x, np.float64) ; np.asarray(x).flags.writeable ;
        np.stack([x, x]) ; np.testing.assert_allclose(x, x) ; np.testing.assert_allclose(x, x + 1) ;
        np.testing.assert_equal([x], [x]) ; np.testing.assert_array_equal(np.asarray(x), x) ;
        np.testing.assert_array_less(x, x) ; np.allclose(x, x) ; np.from_dlpack(x) ; np.isscalar(x) ; np.iterable(x) ;
        np.median(x) ; np.add(np.ones(3), x) ; np.float64(2) * x ; np.linalg.norm(x) ; np.histogram(x, 3) ;
        np.zeros(x) ; np.arange(9)[x] ; np.sort(x) ; np.unique(x) ; np.matrix(x) ; np.random.default_rng(x).normal() ;
        np.random.default_rng(0).normal(x) ; np.random.default_rng(0).permutation(x) ; np.array2string(x) ;
        np.savetxt(io.StringIO(), x) ; np.add(x, x, out=np.zeros(x.shape)) ; list(np.ndenumerate(x)) ;
        through_file(lambda f: np.save(f, x), np.load) ; through_file(lambda f: np.savez(f, a=x, b=[x]), np.load) ;
        through_file(lambda f: jnp.save(f, x), jnp.load) ; added_to_zeros(x) ;
        np.ma.masked_array(x, np.asarray(x) > 1)
        """,
    ),
    "jax": Table(
        "jax.flatten_util jax.export jax.experimental.multihost_utils",
        """
        jax.device_get({'a': [x]}) ; jax.block_until_ready([x]) ; jax.device_put(x) ; jax.tree.leaves({'a': x}) ;
        jax.device_put(x, jax.devices()[0]) ; jax.tree.map(lambda a: a + 1, {'a': x}) ;
        jax.eval_shape(lambda a: a, x) ; jax.flatten_util.ravel_pytree({'a': x})[0] ; jax.typeof(x) ;
        str(jax.make_jaxpr(lambda a: a + 1)(x)) ; jax.debug.visualize_array_sharding(x) ; jax.debug.print('{}', x) ;
        jax.random.normal(jax.random.key(0), x.shape) ; jax.random.key(x) ;
        jax.random.permutation(jax.random.key(0), x) ; jax.lax.fori_loop(0, x, lambda i, c: c + i, 0) ;
        jnp.array([x, x]) ; jnp.zeros(x) ; jnp.arange(9)[x] ; jnp.arange(9).at[x].set(1) ; jnp.linspace(0, x, 3) ;
        jnp.from_dlpack(x) ; jnp.array_equal(x, x) ; jax.export.export(jax.jit(lambda a: a))(x).in_avals ;
        jax.experimental.multihost_utils.process_allgather(x) ;
        jax.make_array_from_callback(x.shape, x.sharding, x.__getitem__)
        """,
    ),
    "chex": Table(
        "chex",
        """
        chex.assert_shape(x, x.shape) ; chex.assert_rank(x, 2) ; chex.assert_type(x, float) ; chex.assert_scalar(x) ;
        chex.assert_scalar_positive(x) ; chex.assert_trees_all_close({'a': x}, {'a': x}) ;
        chex.assert_tree_all_finite(x) ; chex.assert_trees_all_close(x, x + 1) ;
        chex.assert_tree_has_only_ndarrays([x]) ; chex.assert_equal_shape([x, x]) ;
        chex.assert_trees_all_equal_shapes_and_dtypes(x, x) ;
        chex.assert_tree_is_on_device(x, device=jax.devices()[0])
        """,
    ),
    "equinox": Table(
        "equinox as eqx",
        """
        eqx.filter({'a': x, 'b': 1}, eqx.is_array) ; eqx.tree_equal(x, x) ; eqx.tree_pformat({'a': x}) ;
        through_leaves(eqx, x) ;
        eqx.tree_at(lambda t: t[0], [x], 1) ; eqx.filter_grad(lambda a: (a * a).sum())(x) ;
        eqx.apply_updates([x], [x])
        """,
    ),
    "flax": Table(
        "flax.serialization flax.core flax.traverse_util treescope",
        """
        flax.serialization.to_bytes({'a': x}) ; flax.serialization.from_bytes([x], flax.serialization.to_bytes([x])) ;
        flax.serialization.msgpack_restore(flax.serialization.msgpack_serialize({'a': x})) ;
        flax.serialization.to_state_dict(Pair(x, 1)) ; flax.serialization.from_state_dict({'a': x}, {'a': x}) ;
        flax.core.freeze({'a': x}) ; flax.traverse_util.flatten_dict({'a': {'b': x}}) ; treescope.render_to_text([x])
        """,
    ),
    "optax": Table(
        "optax",
        """
        optax.global_norm([x]) ; optax.apply_updates([x], [x]) ; optax.adam(1e-3).init({'a': x}) ;
        optax.exponential_decay(0.1, 10, 0.9)(x) ; optax.incremental_update(x, x, 0.5)
        """,
    ),
    "scipy": Table(
        "scipy.stats scipy.special scipy.optimize scipy.sparse scipy.spatial scipy.interpolate scipy.linalg",
        """
        scipy.special.expit(x) ; scipy.stats.describe(x) ; scipy.stats.zscore(x) ; scipy.linalg.svd(x) ;
        scipy.sparse.csr_matrix(x).toarray() ; scipy.spatial.distance.pdist(x) ; scipy.spatial.KDTree(x).query(x) ;
        scipy.optimize.brentq(lambda v: v - x, -9, 9) ; scipy.interpolate.CubicSpline(np.arange(5), x)(1.5) ;
        scipy.optimize.minimize(lambda p: ((p - x) ** 2).sum(), np.zeros(5), method='Nelder-Mead').x
        """,
    ),
    "rich": Table("rich.pretty", "rich.pretty.pretty_repr({'a': [x, Record(x)]})"),
    "tqdm": Table("tqdm", "progress(tqdm, x) ; list(tqdm.tqdm(x, file=io.StringIO()))"),
    "IPython": Table(
        "IPython.lib.pretty IPython.core.formatters types",
        """
        IPython.lib.pretty.pretty(x) ; IPython.lib.pretty.pretty([x, {'a': x}, (x,), Record(x), Pair(x, 1)]) ;
        IPython.lib.pretty.pretty(types.SimpleNamespace(a=x)) ; IPython.lib.pretty.pretty(collections.deque([x])) ;
        IPython.core.formatters.DisplayFormatter().format(x) ;
        IPython.core.formatters.DisplayFormatter().format({'a': [x]})
        """,
    ),
    "matplotlib": Table(
        "matplotlib",
        """
        drawn(lambda a: a.plot(x)) ; drawn(lambda a: a.plot(x, x + 1, 'o')) ; drawn(lambda a: a.imshow(x)) ;
        drawn(lambda a: a.hist(x.ravel())) ; drawn(lambda a: a.scatter(x, x, c=x)) ; drawn(lambda a: a.bar(x, x)) ;
        drawn(lambda a: (a.axhline(x), a.set_xlim(0, x), a.set_title(f'{x:.2f}'))) ; drawn(lambda a: a.contourf(x)) ;
        drawn(lambda a: a.fill_between(x, x, x + 1)) ; drawn(lambda a: a.boxplot(x)) ;
        drawn(lambda a: a.pcolormesh(x))
        """,
    ),
    "pandas": Table(
        "pandas as pd",
        """
        pd.Series(x) ; pd.DataFrame(x) ; pd.DataFrame({'a': x, 'b': x * 2}) ; pd.DataFrame([{'a': x}, {'a': x}]) ;
        pd.DataFrame([[1, x]]) ; pd.Series({'a': x}) ; pd.Series(1.0, index=x) ; pd.Index(x) ; with_columns(pd, x) ;
        pd.Series(np.arange(5.0)) + x ; x * pd.Series(np.arange(5.0)) ; pd.Series(range(5)).isin(x) ; pd.isna(x) ;
        pd.Series(range(5))[x > 2] ; pd.DataFrame({'a': range(5)}).iloc[x] ; pd.cut(x, 2) ;
        pd.DataFrame({'a': x}).to_json()
        """,
    ),
    "PIL": Table("PIL.Image", "np.asarray(PIL.Image.fromarray(np.asarray(x))) ; np.asarray(PIL.Image.fromarray(x))"),
    "sklearn": Table(
        "sklearn.linear_model sklearn.preprocessing sklearn.metrics sklearn.model_selection sklearn.utils",
        """
        sklearn.linear_model.LinearRegression().fit(x, x[:, 0]).coef_ ; sklearn.metrics.mean_squared_error(x, x) ;
        sklearn.preprocessing.StandardScaler().fit_transform(x) ; sklearn.utils.check_array(x) ;
        sklearn.metrics.accuracy_score(x, x) ; sklearn.model_selection.train_test_split(x, random_state=0)
        """,
    ),
    "torch": Table(
        "torch",
        """
        torch.from_dlpack(x).numpy() ; torch.as_tensor(x).shape ; torch.tensor(x) ; torch.tensor([x, x]) ;
        torch.from_numpy(np.array(x)) ; torch.ones(3) + torch.from_dlpack(x) ;
        jnp.from_dlpack(torch.from_dlpack(x) + 1) ; torch.full((2,), x) ; torch.utils.data.default_collate([x, x])
        """,
    ),
    "safetensors": Table(
        "safetensors.flax",
        "safetensors.flax.save({'a': x}) ; safetensors.flax.load(safetensors.flax.save({'a': x}))",
    ),
    "xarray": Table(
        "xarray", "xarray.DataArray(x).mean() ; xarray.DataArray(x).values ; xarray.Dataset({'a': ((), x)})"
    ),
    "array_api_compat": Table(
        "array_api_compat",
        """
        array_api_compat.is_jax_array(x) ; array_api_compat.is_array_api_obj(x) ;
        array_api_compat.is_writeable_array(x) ; array_api_compat.array_namespace(x, jnp.ones(2)) ;
        array_api_compat.device(x) ; array_api_compat.size(x)
        """,
    ),
    "yaml": Table("yaml", "yaml.safe_dump(x) ; yaml.safe_dump({'a': x.tolist()})"),
}


def names_of(imports: str) -> dict[str, Any]:
    """The names that the rows of a table use; skips the test if one of its libraries is not installed."""
    names = {**globals()}
    for module, _, name in re.findall(r"([\w.]+)( as (\w+))?", imports):
        if importlib.util.find_spec(module.split(".")[0]) is None:
            pytest.skip(f"{module} is not installed")
        imported = importlib.import_module(module)
        names[name or module.split(".")[0]] = imported if name else sys.modules[module.split(".")[0]]
    return names


def outcome(expression: str, names: Mapping[str, Any], array: Any) -> Any:
    names = {**names, "x": array}
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()) as printed:
        warnings.simplefilter("ignore")
        try:
            return described(eval(expression, names)), printed.getvalue()
        except NameError:
            raise
        except Exception as error:
            return f"raises {type(error).__name__}"


def described(value: Any) -> Any:
    if isinstance(value, Mapping):
        return type(value).__name__, [(key, described(item)) for key, item in value.items()]
    if isinstance(value, (tuple, list)):
        return type(value).__name__, [*map(described, value)]
    if isinstance(value, (jax.Array, np.ndarray)):
        kind = "array of jax" if isinstance(value, jax.Array) else "array of numpy"
        return kind, str(value.dtype), value.shape, getattr(value, "weak_type", False), repr(np.asarray(value))
    return type(value).__name__, re.sub(r"0x[0-9a-f]+", "", repr(value))


def differing(rows: Iterable[str], names: Mapping[str, Any], array: Any) -> dict[str, list[Any]]:
    ours = jitclient.device_put(array)
    outcomes = {row: [outcome(row, names, array), outcome(row, names, ours)] for row in rows}
    return {row: both for row, both in outcomes.items() if both[0] != both[1]}


QUICK = [("printing", "matrix"), ("types", "matrix"), ("python", "integer"), ("encoders", "matrix")]
CASES = [*QUICK, *sampled([case for case in itertools.product(TABLES, ARRAYS) if case not in QUICK], 4)]


@pytest.mark.parametrize(("library", "name"), CASES)
def test_a_handle_is_as_welcome_as_an_array_of_jax(library: str, name: str) -> None:
    if library == "buffers" and sys.version_info < (3, 12):
        pytest.skip("only since Python 3.12 a class in Python can have a buffer")
    table = TABLES[library]
    rows = [" ".join(row.split()) for row in table.rows.split(" ;")]
    assert not differing(rows, names_of(table.imports), ARRAYS[name]())
