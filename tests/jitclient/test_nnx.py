"""`jitclient.nnx.jit` does to its caller's modules what `flax.nnx.jit` does."""

import copy
import functools
import gc
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import jitclient.nnx
from jitclient.nnx.graph import Graph

pytestmark = pytest.mark.usefixtures("daemon")
ADAM = optax.adamw(1e-2)
X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)


class Net(nnx.Module):
    """A network with a list of layers, statistics, randomness and a static attribute."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.layers = nnx.List([nnx.Linear(3, 3, rngs=rngs) for _ in range(2)])
        self.norm = nnx.BatchNorm(3, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)
        self.scale = 2.0

    def __call__(self, x: Any) -> Any:
        for layer in self.layers:
            x = nnx.relu(layer(x))
        return self.dropout(self.norm(x)) * self.scale


class Weight:
    """A value whose hash is its content."""

    def __init__(self) -> None:
        self.value = 1

    def __hash__(self) -> int:
        return self.value

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Weight) and self.value == other.value


class Counter(nnx.Module):
    """A count that calls add to."""

    def __init__(self) -> None:
        self.count = nnx.Variable(jnp.array(0))

    def add(self, n: Any) -> Any:
        self.count[...] += n
        return self.count[...] * 2


class Holder(nnx.Module):
    """Arrays and containers as attributes."""

    def __init__(self) -> None:
        self.seen = jnp.zeros(2)
        self.states = nnx.data({"a": nnx.Variable(jnp.ones(2)), "b": (nnx.Variable(jnp.ones(1)), None)})


def net() -> Net:
    return Net(nnx.Rngs(0))


def train(model: Net, optimizer: Any, metrics: Any, x: Any) -> Any:
    def loss_of(model: Net) -> Any:
        return (model(x) ** 2).mean()

    loss, gradients = nnx.value_and_grad(loss_of)(model)
    optimizer.update(model, gradients)
    metrics.update(loss=loss)
    return loss


def training(jit: Any) -> Any:
    model = net()
    optimizer = nnx.Optimizer(model, ADAM, wrt=nnx.Param)
    metrics = nnx.MultiMetric(loss=nnx.metrics.Average("loss"))
    step = jit(train)
    losses = [step(model, optimizer, metrics, X) for _ in range(4)]
    model.eval()
    return losses, model, optimizer, metrics, model(X)


def each_call(change: Callable[..., Any], *given: Any, calls: int = 3) -> Callable[..., Any]:
    """The results of some calls of `change(model, ...)`, and the model after them."""

    def case(jit: Any) -> Any:
        model = net()
        jitted = jit(change)
        return [jitted(model, *given) for _ in range(calls)], model

    return case


def adds_attributes(model: Net) -> None:
    model.extra = nnx.Param(jnp.ones(2))
    model.note = "a note"
    model.more = nnx.Linear(2, 2, rngs=nnx.Rngs(1))


def removes_an_attribute(model: Net) -> None:
    if hasattr(model, "scale"):
        del model.scale
    model.layers[1] = nnx.Linear(3, 3, use_bias=False, rngs=nnx.Rngs(2))


def shares(model: Net) -> Any:
    model.layers[1].kernel = model.layers[0].kernel
    model.layers[0].kernel[...] += 1
    return model.layers[1].kernel[...].sum()


def swaps(model: Net) -> None:
    model.layers[0], model.layers[1] = model.layers[1], model.layers[0]


def appends(model: Net) -> None:
    model.layers.append(nnx.Linear(3, 3, rngs=nnx.Rngs(len(model.layers))))


def counts_in_static(model: Net) -> Any:
    model.scale = model.scale + 1
    return jnp.array(model.scale)


def sets_metadata(model: Net) -> None:
    model.layers[0].kernel.set_metadata("note", "a note")


def cycles(model: Net) -> None:
    model.norm.parent = model


def replaces_statistics(model: Net) -> None:
    model.norm.mean = nnx.BatchStat(jnp.full(3, 7.0))


def gives_the_model_back(model: Net) -> Any:
    model.scale = 5.0
    return model.layers, {"again": model, "new": Counter()}


def in_any_place(given: Any, *, more: Any) -> Any:
    given["a"][0].add(2)
    more.add(3)
    return {"sum": given["a"][0].count[...] + more.count[...], "x": given["x"] * 2}


def nested(jit: Any) -> Any:
    one, other = Counter(), Counter()
    results = [jit(in_any_place)({"a": [one], "x": X}, more=other) for _ in range(2)]
    results.append(jit(in_any_place)({"a": [one], "x": X}, more=one))
    return results, one, other


def methods(jit: Any) -> Any:
    class WithMethod(Counter):
        add = jit(Counter.add)

    made = WithMethod()
    return made.add(3), WithMethod.add(made, 4), made.count


def static_and_donated(jit: Any) -> Any:
    @functools.partial(jit, static_argnums=1, donate_argnames=("model",))
    def change(model: Counter, how: str) -> Any:
        return model.add(len(how))

    model = Counter()
    return change(model, "abc"), change(model, "ab"), model


def variables_alone(jit: Any) -> Any:
    @jit
    def change(variable: Any, state: Any) -> Any:
        variable[...] = variable[...] * 2
        return jax.tree.map(lambda x: x + 1, state)

    variable = nnx.Param(jnp.arange(3.0))
    return [change(variable, nnx.state(net(), nnx.Param)) for _ in range(2)], variable


def makes(jit: Any) -> Any:
    made = jit(lambda key: Net(nnx.Rngs(key)))(jax.random.key(3))
    return made, made(X)


def sows(jit: Any) -> Any:
    @jit
    def run(model: Net, x: Any) -> Any:
        model.sow(nnx.Intermediate, "seen", x.sum())
        return model(x)

    model = net()
    results = [run(model, X) for _ in range(2)]
    return results, nnx.pop(model, nnx.Intermediate), run(model, X), model


def from_outside(jit: Any) -> Any:
    """What the caller changes between calls counts."""
    run = jit(lambda model, x: model(x))
    model = net()
    results = [run(model, X)]
    model.scale = 3.0
    results.append(run(model, X))
    model.layers.append(nnx.Linear(3, 3, rngs=nnx.Rngs(9)))
    results.append(run(model, X))
    model.layers[0].kernel = model.layers[1].kernel
    results.append(run(model, X))
    model.layers[0].kernel[...] = np.ones((3, 3), np.float32)
    results.append(run(model, X))
    model.eval()
    results.append(run(model, X))
    model.layers[1].bias.set_metadata("note", 1)
    results.append(run(model, X))
    vars(model)["renamed"] = vars(model).pop("scale")
    model.scale = 1.0
    results.append(run(model, X))
    return results, model


def arrays_as_attributes(jit: Any) -> Any:
    @jit
    def change(holder: Holder) -> None:
        holder.seen = holder.seen + 1
        holder.states["a"][...] += holder.seen
        holder.states["b"][0][...] *= 3

    holder = Holder()
    change(holder)
    change(holder)
    holder.states["c"] = nnx.Variable(jnp.ones(4))
    change(holder)
    return holder


def pairs_of_states(jit: Any) -> Any:
    model = Counter()
    model.weight = Weight()  # type: ignore[attr-defined]
    run = jit(lambda model: model.add(model.weight.value))
    results = [run(model)]
    model.weight.value = 10  # type: ignore[attr-defined]
    results.append(run(model))
    del model.weight
    return results, model


def vmapped(jit: Any) -> Any:
    @functools.partial(nnx.vmap, in_axes=(nnx.StateAxes({nnx.Param: 0, ...: None}), None), out_axes=0)
    def apply(model: Any, x: Any) -> Any:
        return model(x)

    @nnx.split_rngs(splits=5)
    @nnx.vmap(in_axes=(0,), out_axes=nnx.StateAxes({nnx.Param: 0, ...: None}))
    def ensemble(rngs: nnx.Rngs) -> Any:
        return nnx.Linear(3, 2, rngs=rngs)

    model = ensemble(nnx.Rngs(0))
    run = jit(apply)
    return run(model, X), run(model, X), model


def scanned(jit: Any) -> Any:
    @nnx.split_rngs(splits=3)
    @nnx.vmap(in_axes=(0,), out_axes=0)
    def layers(rngs: nnx.Rngs) -> Any:
        return nnx.Linear(3, 3, rngs=rngs)

    @nnx.scan(in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)
    @nnx.remat
    def forward(x: Any, layer: Any) -> Any:
        return nnx.relu(layer(x))

    @jit
    def gradient(model: Any, x: Any) -> Any:
        return nnx.grad(lambda model: forward(x, model).sum())(model)

    return gradient(layers(nnx.Rngs(0)), X)


def branches_and_loops(jit: Any) -> Any:
    @jit
    def run(model: Counter, n: Any) -> Any:
        nnx.cond(n > 2, lambda model: model.add(1), lambda model: model.add(100), model)
        return nnx.while_loop(lambda at: at[1] < n, lambda at: (_added(at[0]), at[1] + 1), (model, 0))[1]

    model = Counter()
    return run(model, 3), run(model, 1), model


def _added(model: Counter) -> Counter:
    model.add(10)
    return model


def inside_others(jit: Any) -> Any:
    inner = jit(Counter.add)
    model, outer = Counter(), jit(lambda model: inner(model, 1) + inner(model, 2))
    summed = nnx.grad(lambda model, x: (jit(nnx.Linear.__call__)(model, x) ** 2).sum())
    return outer(model), model, summed(nnx.Linear(3, 2, rngs=nnx.Rngs(0)), X)


def partly_cached(jit: Any) -> Any:
    model = Counter()
    add = nnx.cached_partial(jit(Counter.add), model)
    return [add(2), add(3)], model.count


def without_graph(jit: Any) -> Any:
    model = net()
    step = jit(lambda model, x: model(x), graph=False)
    return step(model, X), step(model, X), model


def raises(jit: Any) -> Any:
    def fails(model: Counter) -> None:
        model.add(5)
        raise KeyError("no")

    model = Counter()
    with pytest.raises(KeyError, match="no"):
        jit(fails)(model)
    return model


CASES: dict[str, Callable[..., Any]] = {
    "training": training,
    "values": each_call(lambda model, x: model(x), X),
    **{
        change.__name__: each_call(change)
        for change in (
            adds_attributes,
            removes_an_attribute,
            shares,
            swaps,
            appends,
            counts_in_static,
            sets_metadata,
            cycles,
            replaces_statistics,
            gives_the_model_back,
        )
    },
    **{
        case.__name__: case
        for case in (
            nested,
            methods,
            static_and_donated,
            variables_alone,
            makes,
            sows,
            from_outside,
            arrays_as_attributes,
            pairs_of_states,
            vmapped,
            scanned,
            branches_and_loops,
            inside_others,
            partly_cached,
            without_graph,
            raises,
        )
    },
}


def assert_same(ours: Any, theirs: Any) -> None:
    (graph, leaves), (their_graph, their_leaves) = (nnx.flatten((each,), with_paths=False) for each in (ours, theirs))
    assert graph == their_graph
    for one, other in zip(jax.tree.leaves(leaves), jax.tree.leaves(their_leaves), strict=True):
        assert one.dtype == other.dtype
        values = [jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x for x in (one, other)]
        np.testing.assert_allclose(*values, rtol=2e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore:Using 'Module.sow")
@pytest.mark.parametrize("name", CASES)
def test_it_does_what_flax_does(name: str) -> None:
    assert_same(CASES[name](jitclient.nnx.jit), CASES[name](nnx.jit))
