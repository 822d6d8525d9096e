"""Programs that assign `jax.jit = jitclient.jit`, and its counterparts of flax and equinox likewise."""

PROGRAM = """
    import json
    import jax
    import jax.numpy as jnp
    import jitclient

    jax.jit = jitclient.jit

    @jax.jit
    def double(x):
        return x * 2

    @jax.jit
    def talking(x):
        jax.debug.print("{}", x)
        return double(x) + 1

    placed = jax.jit(lambda x: x + 1, device=None, in_shardings=None)
    print(json.dumps([
        float(double(3.0)),
        float(jax.grad(lambda x: double(x) ** 2)(3.0)),
        jax.vmap(double)(jnp.arange(3.0)).tolist(),
        float(talking(1.0)),
        float(placed(1.0)),
        type(double).__name__,
    ]))
"""


def test_calls_on_the_daemon_inside_transformations_and_in_this_process_end(own):
    with own.serving():
        found = own.run(PROGRAM, JITSERVER_FALLBACK="local", PYTHONWARNINGS="ignore")
    assert found == [6.0, 24.0, [0.0, 2.0, 4.0], 3.0, 2.0, "RemoteFunction"]


LIBRARIES = """
    import json
    import jax
    import jitclient

    jax.jit = jitclient.jit

    import equinox as eqx
    import jax.numpy as jnp
    from flax import nnx

    nnx.jit = jitclient.nnx.jit
    eqx.filter_jit = jitclient.eqx.filter_jit

    class Counter(nnx.Module):
        def __init__(self):
            self.n = nnx.Variable(jnp.zeros(()))

        @nnx.jit
        def __call__(self, x):
            self.n[...] += 1
            return x * 2

    @nnx.jit
    def step(counter, x):
        return counter(x) + 1

    class Scale(eqx.Module):
        factor: jax.Array

        @eqx.filter_jit
        def __call__(self, x):
            return self.factor * x

    @eqx.filter_jit
    def twice(scale, x):
        return scale(x) + eqx.filter_jit(scale)(x)

    counter, scale = Counter(), Scale(jnp.float32(5))
    print(json.dumps([
        float(step(counter, 3.0)),
        float(counter(3.0)),
        float(counter.n[...]),
        float(nnx.grad(lambda counter, x: step(counter, x), argnums=1)(counter, 3.0)),
        float(scale(2.0)),
        float(twice(scale, 2.0)),
        float(eqx.filter_grad(lambda scale: twice(scale, 2.0))(scale).factor),
        nnx.jit(lambda counter: counter.n[...] * 1).__class__.__name__,
    ]))
"""


def test_counterparts_of_libraries_may_take_the_places_of_theirs(own):
    with own.serving():
        found = own.run(LIBRARIES)
    assert found == [7.0, 6.0, 2.0, 2.0, 10.0, 20.0, 4.0, "Jitted"]
