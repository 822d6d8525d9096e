"""`jitclient.eqx.filter_jit` does what `equinox.filter_jit` does."""

import pickle
import warnings
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jitclient.eqx

pytestmark = pytest.mark.usefixtures("daemon")
X = np.arange(8.0, dtype=np.float32).reshape(4, 2)


class Net(eqx.Module):
    """A network with state, randomness, a static field and a jitted method."""

    linear: eqx.nn.Linear
    norm: eqx.nn.BatchNorm
    dropout: eqx.nn.Dropout
    scale: float = eqx.field(static=True)

    def __init__(self, key: Any) -> None:
        self.linear = eqx.nn.Linear(2, 3, key=key)
        self.norm = eqx.nn.BatchNorm(3, "batch", mode="ema")
        self.dropout = eqx.nn.Dropout(0.5)
        self.scale = 2.0

    def __call__(self, x: Any, state: Any, key: Any) -> Any:
        x, state = self.norm(self.linear(x) * self.scale, state)
        return self.dropout(x, key=key), state

    @jitclient.eqx.filter_jit
    def of_linear(self, x: Any) -> Any:
        return self.linear(x)


def batched(net: Net, state: Any, x: Any, key: Any) -> Any:
    over_batch = jax.vmap(net, axis_name="batch", in_axes=(0, None, 0), out_axes=(0, None))
    return over_batch(x, state, jax.random.split(key, len(x)))


def assert_same(ours: Any, theirs: Any) -> None:
    arrays, others = eqx.partition(ours, eqx.is_array)
    their_arrays, their_others = eqx.partition(theirs, eqx.is_array)
    assert jax.tree.structure(arrays) == jax.tree.structure(their_arrays)
    assert eqx.tree_equal(others, their_others)
    jax.tree.map(np.testing.assert_array_equal, arrays, their_arrays)


def outcome(call: Any) -> Any:
    """Return the value of a call, or the type of its exception."""
    try:
        return call()
    except Exception as error:
        return type(error)


def test_arrays_are_inputs_and_all_else_is_static_in_arguments_and_results() -> None:
    def whole(model: Any, x: Any, mode: str, *, power: int = 2) -> Any:
        total = (jax.vmap(model)(x) ** power).sum() if mode == "train" else None
        return {"loss": total, "mode": mode, "model": model, "power": power}

    model = eqx.nn.MLP(2, 1, 8, 2, key=jax.random.key(0))
    ours, theirs = jitclient.eqx.filter_jit(whole), eqx.filter_jit(whole)
    for given, keywords in [((model, X, "train"), {}), ((model, X, "test"), {"power": 3})]:
        assert_same(ours(*given, **keywords), theirs(*given, **keywords))
    assert isinstance(ours(model, X, "train")["loss"], jitclient.Array)
    assert ours(model, X, "train")["model"].activation is model.activation


def test_state_and_randomness_and_inference_mode() -> None:
    net, state = eqx.nn.make_with_state(Net)(jax.random.key(1))
    given = net, state, X, jax.random.key(2)
    assert_same(jitclient.eqx.filter_jit(batched)(*given), eqx.filter_jit(batched)(*given))
    quiet = eqx.nn.inference_mode(net), *given[1:]
    assert_same(jitclient.eqx.filter_jit(batched)(*quiet), eqx.filter_jit(batched)(*quiet))


def test_methods_and_modules_that_are_called() -> None:
    net, _ = eqx.nn.make_with_state(Net)(jax.random.key(1))
    assert_same(net.of_linear(X[0]), net.linear(X[0]))
    assert_same(Net.of_linear(net, X[0]), net.linear(X[0]))
    assert_same(jitclient.eqx.filter_jit(net.linear)(X[0]), net.linear(X[0]))


def test_inside_it_gradients_are_those_of_equinox() -> None:
    @eqx.filter_value_and_grad
    def loss_of(model: Any, x: Any) -> Any:
        return (jax.vmap(model)(x) ** 2).mean()

    model = eqx.nn.MLP(2, 1, 8, 2, key=jax.random.key(0))
    ours, theirs = jitclient.eqx.filter_jit(loss_of)(model, X), eqx.filter_jit(loss_of)(model, X)
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), *(each[1] for each in (ours, theirs)))


@pytest.mark.parametrize(
    ("donate", "first", "second"),
    [
        ("none", False, False),
        ("all", True, True),
        ("warn", True, True),
        ("all-except-first", False, True),
        ("warn-except-first", False, True),
    ],
)
def test_donation_takes_what_it_says(donate: str, first: bool, second: bool) -> None:
    a, b = jitclient.device_put(X), jitclient.device_put(X + 1)
    step = jitclient.eqx.filter_jit(lambda a, b: (a * 2, b * 3), donate=donate)
    assert_same(step(a, b), (X * 2, (X + 1) * 3))
    assert (a.is_deleted(), b.is_deleted()) == (first, second)


@pytest.mark.parametrize(("donate", "warns"), [("warn", True), ("all", False)])
def test_a_donation_of_no_use_warns_where_that_was_asked_for(donate: str, warns: bool) -> None:
    step = jitclient.eqx.filter_jit(lambda a: a.sum(), donate=donate)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        float(step(jitclient.device_put(X)))
    assert any("donated buffers" in str(one.message) for one in told) == warns


def test_mistakes_are_those_of_equinox() -> None:
    def plus(x: Any, y: Any) -> Any:
        return x + y

    for call in [
        lambda jit: jit(plus)(X),
        lambda jit: jit(plus)(X, "text"),
        lambda jit: jit(plus)(X, y=X, z=X),
        lambda jit: jit(plus, donate="some"),
        lambda jit: jit(lambda s: X)({1, 2}),
    ]:
        ours, theirs = (
            outcome(lambda jit=jit, call=call: call(jit)) for jit in (jitclient.eqx.filter_jit, eqx.filter_jit)
        )
        assert isinstance(theirs, type), call
        assert ours in (theirs, ValueError), call


@pytest.mark.callbacks
def test_a_condition_that_holds_raises_equinoxs_error_and_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def positive(x: Any) -> Any:
        return eqx.error_if(x, x < 0, "must be positive")

    assert_same(jitclient.eqx.filter_jit(positive)(X), X)
    with pytest.raises(eqx.EquinoxRuntimeError, match=r"^must be positive$"):
        jitclient.eqx.filter_jit(positive)(-X)
    assert caplog.records == []
    with pytest.raises(jax.errors.JaxRuntimeError):
        jitclient.jit(positive)(-X)
    assert [record.name for record in caplog.records] == ["jax._src.callback"]


def test_the_stages_take_the_arguments_of_the_function() -> None:
    lowered = jitclient.eqx.filter_jit(lambda x, n: (x * n, n)).lower(X, 3)
    assert "multiply" in lowered.as_text()
    assert_same(lowered.compile()(X, 3), (X * 3, 3))


SCALE = 2.0


@jitclient.eqx.filter_jit
def scaled(model: Any, x: Any, flag: bool) -> Any:
    return jax.vmap(model)(x) * SCALE, flag


@pytest.mark.slow
def test_it_may_be_inside_of_others_and_of_transformations() -> None:
    model = eqx.nn.MLP(2, 1, 8, 2, key=jax.random.key(0))
    plain = eqx.filter_jit(scaled.__wrapped__)
    whole = [
        lambda of: jitclient.eqx.filter_jit(lambda m, x: of(m, x, True))(model, X),
        lambda of: jitclient.jit(lambda x: of(model, x, True)[0])(X),
        lambda of: eqx.filter_vmap(lambda x: of(model, x, True)[0])(np.stack([X, X + 1])),
        lambda of: eqx.filter_grad(lambda m: of(m, X, True)[0].sum())(model),
        lambda of: jitclient.eqx.filter_jit(eqx.filter_value_and_grad(lambda m: of(m, X, True)[0].sum()))(model),
    ]
    for call in whole:
        ours, theirs = eqx.filter(call(scaled), eqx.is_array), eqx.filter(call(plain), eqx.is_array)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), ours, theirs)


def test_a_name_that_is_rebound_counts_at_the_next_call(monkeypatch: pytest.MonkeyPatch) -> None:
    net = eqx.nn.Lambda(lambda x: x)
    before = np.asarray(scaled(net, X, True)[0])
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    np.testing.assert_allclose(scaled(net, X, True)[0], before * 1.5)


def test_a_jitted_module_and_a_jitted_method_are_trees_of_the_modules_arrays() -> None:
    net, _ = eqx.nn.make_with_state(Net)(jax.random.key(1))

    def trained(jitted: Any) -> Any:
        @eqx.filter_value_and_grad
        def loss_of(jitted: Any) -> Any:
            return (jitted(X[0]) ** 2).sum()

        loss, gradients = jitclient.eqx.filter_jit(loss_of)(jitted)
        updates = jax.tree.map(lambda gradient: -gradient, gradients)
        return loss, eqx.apply_updates(jitted, updates)(X[0])

    theirs = trained(eqx.filter_jit(net.linear))
    for ours in (jitclient.eqx.filter_jit(net.linear), net.of_linear, jitclient.eqx.filter_jit(net.of_linear)):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), trained(ours), theirs)


def test_in_captures_it_is_what_its_function_is() -> None:
    def key(annotation: Any) -> str:
        def inner(x: Any) -> Any:
            return x * 2

        inner.__annotations__["x"] = annotation
        jitted = jitclient.eqx.filter_jit(inner)
        return jitclient.function_key(lambda x: jitted(x))

    assert key(int) == key(float), "nothing reads an annotation"


@pytest.mark.slow
def test_an_ensemble_is_mapped_inside() -> None:
    keys = jax.random.split(jax.random.key(0), 3)
    ensemble = eqx.filter_vmap(lambda key: eqx.nn.MLP(2, 1, 4, 1, key=key))(keys)

    def of_each(ensemble: Any, x: Any) -> Any:
        return eqx.filter_vmap(lambda model, x: model(x), in_axes=(eqx.if_array(0), None))(ensemble, x)

    assert_same(jitclient.eqx.filter_jit(of_each)(ensemble, X[0]), eqx.filter_jit(of_each)(ensemble, X[0]))


def test_the_next_process_traces_nothing(run_script: Any, counts: Any) -> None:
    program = """
        import json
        import equinox as eqx, jax, numpy as np
        import jitclient.eqx

        model = eqx.nn.MLP(2, 1, 8, 2, key=jax.random.key(0))

        @jitclient.eqx.filter_jit(donate="all-except-first")
        def of(x, model, name):
            return jax.vmap(model)(x).sum(), name, model

        total, name, model = of(np.ones((4, 2), np.float32), model, "a name")
        print(json.dumps([float(total), name]))
    """
    first = run_script(program)
    traced = counts()["traces"]
    assert run_script(program, env={"PYTHONHASHSEED": "7"}) == first
    assert counts()["traces"] == traced


def test_a_pickle_keeps_what_it_was_given() -> None:
    again = pickle.loads(pickle.dumps(jitclient.eqx.filter_jit(len, donate="warn", deps=["HOME"])))
    assert (again.__wrapped__, again._donate, again._deps) == (len, "warn", ("HOME",))


def test_explain_knows_its_functions() -> None:
    @jitclient.eqx.filter_jit
    def explained(model: Any, x: Any) -> Any:
        return jax.vmap(model)(x).sum()

    model = eqx.nn.Linear(2, 1, key=jax.random.key(0))
    assert not jitclient.explain(explained, model, jnp.ones((3, 2))).hit
    explained(model, jnp.ones((3, 2)))
    assert jitclient.explain(explained, model, jnp.ones((3, 2))).hit
    assert "float32[3,2] -> float32[4,2]" in str(jitclient.explain(explained, model, jnp.ones((4, 2))))
