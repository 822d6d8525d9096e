"""Programs that assign `jax.jit = jitclient.jit`."""

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


def test_calls_on_the_daemon_inside_transformations_and_in_this_process_end(new_daemon, short_path, run_script):
    address = f"unix:{short_path}/d.sock"
    environment = {"JITSERVER_ADDRESS": address, "JITSERVER_FALLBACK": "local", "PYTHONWARNINGS": "ignore"}
    with new_daemon(address):
        found = run_script(PROGRAM, env=environment)
    assert found == [6.0, 24.0, [0.0, 2.0, 4.0], 3.0, 2.0, "RemoteFunction"]
