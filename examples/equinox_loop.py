"""Train an equinox model. With `auto_static=True`, its functions, sizes and flags are static."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import jitclient


def loss_of(model, x, y):
    """Mean squared error over a batch."""
    return jnp.mean((jax.vmap(model)(x) - y) ** 2)


@jitclient.jit(auto_static=True)
def step(arrays, rest, x, y):
    """One step of gradient descent on the arrays of a model; `rest` is everything else in it."""
    loss, gradients = eqx.filter_value_and_grad(loss_of)(eqx.combine(arrays, rest), x, y)
    updates = jax.tree.map(lambda gradient: -0.1 * gradient, gradients)
    return eqx.apply_updates(arrays, updates), loss


def main() -> None:
    """Trains for 200 steps; the model's arrays stay on the daemon."""
    random = np.random.default_rng(0)
    x = random.normal(size=(256, 2)).astype(np.float32)
    y = x[:, :1] * x[:, 1:]
    x, y = jitclient.device_put((x, y))

    model = eqx.nn.MLP(in_size=2, out_size=1, width_size=32, depth=2, key=jax.random.key(0))
    arrays, rest = eqx.partition(model, eqx.is_array)
    for number in range(200):
        arrays, loss = step(arrays, rest, x, y)
        if number % 50 == 0:
            print(f"step {number}: loss {float(loss):.4f}")
    print(f"final loss {float(loss):.4f}")
    trained = eqx.combine(arrays, rest)
    print(f"at (1, 1): {float(trained(jnp.ones(2))[0]):.2f}")  # the model works in this process too


if __name__ == "__main__":
    main()
