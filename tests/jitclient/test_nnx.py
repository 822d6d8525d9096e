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
    """Containers as attributes, and a static one whose hash is its content."""

    def __init__(self) -> None:
        self.seen = nnx.Variable(jnp.zeros(2), note="a note")
        self.states = nnx.data({"a": nnx.Variable(jnp.ones(2)), "b": (nnx.Variable(jnp.ones(1)), [None])})
        self.state = nnx.data(nnx.State({"a": nnx.Variable(jnp.ones(2))}))
        self.weight = Weight()
        self.name = "a name"
        self.inner = Counter()


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
    """Return results around the caller's changes between calls."""
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

    holder = Holder()
    holder.seen = jnp.zeros(2)
    change(holder)
    change(holder)
    holder.states["c"] = nnx.Variable(jnp.ones(4))
    change(holder)
    return holder


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

CORE = ("training", "from_outside", "gives_the_model_back", "nested", "inside_others", "raises")


def assert_same(ours: Any, theirs: Any) -> None:
    (graph, leaves), (their_graph, their_leaves) = (nnx.flatten((each,), with_paths=False) for each in (ours, theirs))
    assert graph == their_graph
    for one, other in zip(jax.tree.leaves(leaves), jax.tree.leaves(their_leaves), strict=True):
        assert one.dtype == other.dtype
        values = [jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x for x in (one, other)]
        np.testing.assert_allclose(*values, rtol=2e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore:Using 'Module.sow")
@pytest.mark.parametrize(
    "name", [name if name in CORE else pytest.param(name, marks=pytest.mark.slow) for name in CASES]
)
def test_it_does_what_flax_does(name: str) -> None:
    assert_same(CASES[name](jitclient.nnx.jit), CASES[name](nnx.jit))


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[Graph]:
    """The structures that calls had flax find out, from now on."""
    found: list[Graph] = []

    def note(*given: Any) -> Graph:
        found.append(Graph(*given))
        return found[-1]

    monkeypatch.setattr("jitclient.nnx.jitted.Graph", note)
    return found


def test_the_structure_is_found_once_while_it_is_unchanged(graphs: list[Graph]) -> None:
    training(jitclient.nnx.jit)
    assert len(graphs) == 1


def test_inside_a_trace_it_is_flax_s_own(graphs: list[Graph]) -> None:
    layer = nnx.Linear(3, 2, rngs=nnx.Rngs(0))
    nnx.grad(lambda layer, x: jitclient.nnx.jit(nnx.Linear.__call__)(layer, x).sum())(layer, X)
    assert graphs == []


def test_state_stays_on_the_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    fetched: list[Any] = []
    monkeypatch.setattr(jitclient.Array, "_ask", lambda self, arrays, fetch: fetched.append(self))
    step, x = jitclient.nnx.jit(train), jitclient.device_put(X)
    jitted = step._jitted
    monkeypatch.setattr(step, "_jitted", lambda *args: given.append(jax.tree.leaves(args)) or jitted(*args))
    model = net()
    state = model, nnx.Optimizer(model, ADAM, wrt=nnx.Param), nnx.MultiMetric(loss=nnx.metrics.Average("loss"))
    for _ in range(4):
        step(*state, x)
    assert {type(leaf) for leaves in given[1:] for leaf in leaves} == {jitclient.Array}
    assert fetched == []


def test_a_model_that_is_dropped_takes_its_arrays_along() -> None:
    step, model = jitclient.nnx.jit(Counter.add), Counter()
    step(model, 1)
    array = weakref.ref(model.count.get_raw_value())
    assert type(array()) is jitclient.Array
    del model
    gc.collect()
    assert array() is None


CHANGES: dict[str, Callable[[Holder], Any]] = {
    "another static value": lambda holder: setattr(holder, "name", "another"),
    "a static value that changed": lambda holder: setattr(holder.weight, "value", 2),
    "another module": lambda holder: setattr(holder, "inner", Counter()),
    "another Variable": lambda holder: setattr(holder.inner, "count", nnx.Variable(jnp.array(0))),
    "another name": lambda holder: vars(holder).update(other=vars(holder).pop("inner")),
    "one attribute more": lambda holder: setattr(holder, "more", 1),
    "one attribute less": lambda holder: delattr(holder.inner, "count"),
    "metadata": lambda holder: holder.seen.set_metadata("note", "another"),
    "a key of metadata": lambda holder: holder.seen.set_metadata("more", None),
    "an entry of a dict": lambda holder: holder.states.update(c=1),
    "a key of a dict": lambda holder: holder.states.update(c=holder.states.pop("b")),
    "an entry of a list": lambda holder: holder.states["b"][1].append(1),
    "an entry of a State": lambda holder: holder.state.update(a=nnx.Variable(jnp.ones(2))),
    "a set-up module": lambda holder: setattr(holder._pytree__state, "_is_setup", True),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_the_structure_is_seen(change: str) -> None:
    holder = Holder()
    graph = Graph([holder], lambda _: None)
    holder.inner.add(1)
    holder.seen[...] = jnp.ones(2)
    assert (graph.is_simple, graph.is_current()) == (True, True)
    CHANGES[change](holder)
    assert not graph.is_current()


def test_many_models_are_not_all_remembered() -> None:
    step, models = jitclient.nnx.jit(Counter.add), [Counter() for _ in range(20)]
    assert [int(step(model, n)) for n, model in enumerate(models)] == [2 * n for n in range(20)]
    assert len(step._graphs) < 20


PROGRAM = """
    import json
    import numpy as np, optax
    from flax import nnx
    import jitclient
    jitclient.install()

    class Net(nnx.Module):
        def __init__(self, rngs):
            self.layers = nnx.List([nnx.Linear(3, 3, rngs=rngs) for _ in range(2)])
            self.norm, self.dropout = nnx.BatchNorm(3, rngs=rngs), nnx.Dropout(0.5, rngs=rngs)

        def __call__(self, x):
            for layer in self.layers:
                x = nnx.relu(layer(x))
            return self.dropout(self.norm(x))

    @nnx.jit
    def make(key):
        return Net(nnx.Rngs(key))

    @nnx.jit
    def step(model, optimizer, metrics, x):
        loss, gradients = nnx.value_and_grad(lambda model: (model(x) ** 2).mean())(model)
        optimizer.update(model, gradients)
        metrics.update(loss=loss)
        model.calls = getattr(model, "calls", 0) + 1

    import jax
    model = make(jax.random.key(0))
    optimizer = nnx.Optimizer(model, optax.adamw(1e-2), wrt=nnx.Param)
    metrics = nnx.MultiMetric(loss=nnx.metrics.Average("loss"))
    for _ in range(3):
        step(model, optimizer, metrics, np.ones((4, 3), np.float32))
    print(json.dumps([float(metrics.compute()["loss"]), model.calls, type(step).__module__]))
"""


def test_the_next_process_traces_nothing(run_script: Any, counts: Any) -> None:
    first = run_script(PROGRAM, env={"PYTHONHASHSEED": "1"})
    assert first[1:] == [3, "jitclient.nnx.jitted"]
    before = counts()
    assert run_script(PROGRAM, env={"PYTHONHASHSEED": "2"}) == first
    after = counts()
    for name in ("traces", "client_traces", "local_runs"):
        assert after[name] == before[name], name


def refuses_two_shardings(jit: Any) -> Any:
    here, variable = jax.sharding.SingleDeviceSharding(jax.devices()[0]), nnx.Param(jnp.ones(2))
    return jit(lambda a, b: a[...] + b[...], in_shardings=(here, None))(variable, variable)


def outcome(call: Callable[[], Any]) -> Any:
    """Return the value of a call, or the type and the text of its exception."""
    try:
        return call()
    except Exception as error:
        return type(error), str(error).partition("\n")[0]


@pytest.mark.parametrize(
    "mistake",
    [
        lambda jit: jit(Counter().add),
        lambda jit: jit(Counter.add, no_such_keyword=1),
        lambda jit: jit(lambda: 0)(1),
        lambda jit: jit(lambda x: x)("text"),
        refuses_two_shardings,
        lambda jit: jit(lambda model: jnp.zeros(model.count))(Counter()),
    ],
)
def test_mistakes_are_those_of_flax(mistake: Callable[..., Any]) -> None:
    ours, theirs = (outcome(lambda jit=jit: mistake(jit)) for jit in (jitclient.nnx.jit, nnx.jit))
    assert ours[0] is theirs[0], (ours, theirs)


@pytest.mark.parametrize(
    "use",
    [
        lambda jit, param: jit(lambda x: x * 2)(param),
        lambda jit, param: jit(lambda x: x[...].sum())(param),
        lambda jit, param: jit(jnp.dot)(param, jnp.ones(3)),
        lambda jit, param: jit(lambda tree: jax.tree.map(lambda x: x + 1, tree))({"a": param}),
        lambda jit, param: jit(lambda x: x.get_metadata("note"))(param),
        lambda jit, param: jnp.dot(jit(lambda x: x + 1)(jnp.ones(3)), param),
    ],
)
def test_a_param_where_an_array_belongs_is_what_it_is_to_jax(use: Callable[..., Any]) -> None:
    ours, theirs = (
        outcome(lambda jit=jit: use(jit, nnx.Param(jnp.arange(3.0), note=1))) for jit in (jitclient.jit, jax.jit)
    )
    assert type(ours) is type(theirs) or isinstance(ours, jax.Array), (ours, theirs)
    jax.tree.map(np.testing.assert_array_equal, ours, theirs)


@pytest.mark.parametrize("mode", [{"graph": False}, {"graph": True, "graph_updates": False}])
def test_tree_mode_runs_on_the_daemon(mode: dict[str, bool], counts: Any) -> None:
    before, model = counts(), Counter()
    step = jitclient.nnx.jit(Counter.add, **mode)
    assert [int(step(model, n)) for n in (1, 2)] == [2, 6]
    assert type(model.count.get_raw_value()) is jitclient.Array
    after = counts()
    assert (after["client_traces"], after["local_runs"]) == (before["client_traces"], before["local_runs"])


def test_stages_are_those_of_flax() -> None:
    step, model = jitclient.nnx.jit(Counter.add), Counter()
    step(model, 1)
    assert step.eval_shape(model, 1).shape == ()
    assert "stablehlo.add" in step.lower(model, 1).as_text()


def test_it_may_be_copied_and_pickled() -> None:
    step = jitclient.nnx.jit(Counter.add)
    for again in (copy.deepcopy(step), pickle.loads(pickle.dumps(jitclient.nnx.jit(train)))):
        assert type(again) is type(step)


def test_shardings() -> None:
    here = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    for jit in (nnx.jit, jitclient.nnx.jit):
        step, model = jit(Counter.add, in_shardings=(here, None), out_shardings=here), Counter()
        assert int(step(model, 2)) == 4
        assert model.count.get_raw_value().sharding == here
        by_filter = nnx.StateSharding({...: here})
        assert int(jit(Counter.add, in_shardings=(by_filter, None))(model, 2)) == 8


def test_variables_of_references_cannot_leave_the_process() -> None:
    with nnx.var_defaults(ref=True):
        model = Counter()
    with pytest.raises(jitclient.CaptureError, match="Ref, which lives in this process only"):
        jitclient.nnx.jit(Counter.add)(model, 1)


def test_explain_knows_its_functions() -> None:
    @jitclient.nnx.jit
    def explained(model: Any, x: Any) -> Any:
        return model(x).sum()

    model = nnx.Linear(2, 1, rngs=nnx.Rngs(0))
    assert not jitclient.explain(explained, model, jnp.ones((3, 2))).hit
    explained(model, jnp.ones((3, 2)))
    assert jitclient.explain(explained, model, jnp.ones((3, 2))).hit
    assert "float32[3,2] -> float32[4,2]" in str(jitclient.explain(explained, model, jnp.ones((4, 2))))
