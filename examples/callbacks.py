"""Callbacks: prints, a logger and a search of numpy's run in this process, in the middle of programs on the daemon."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback
from scipy.spatial import KDTree

import jitclient

points = np.random.default_rng(0).uniform(size=(200, 2)).astype(np.float32)
tree = KDTree(points)
history = []


def nearest(x):
    """The distance to the nearest point, and that point: a search that is not JAX's."""

    def search(x):
        found, index = tree.query(np.asarray(x))
        return np.float32(found), points[index]

    shapes = jax.ShapeDtypeStruct((), "float32"), jax.ShapeDtypeStruct((2,), "float32")
    return jax.pure_callback(search, shapes, x, vmap_method="sequential")


@jax.custom_vjp
def distance(x):
    """The distance to the nearest point, with a gradient."""
    return nearest(x)[0]


def forward(x):
    """The distance, and what its gradient needs."""
    found, point = nearest(x)
    return found, (x - point) / found


distance.defvjp(forward, lambda direction, g: (g * direction,))


def note(number, mean):
    """Called with each step's arrays: it changes a list of this process."""
    history.append((int(number), float(mean)))


@jitclient.jit
def climb(positions):
    """Moves away from the nearest points, in 40 steps."""

    def step(positions, number):
        means, gradients = jax.vmap(jax.value_and_grad(distance))(positions)
        io_callback(note, None, number, means.mean(), ordered=True)
        jax.lax.cond(
            number % 20 == 0,
            lambda: jax.debug.print("step {}: mean distance {:.4f}", number, means.mean(), ordered=True),
            lambda: None,
        )
        return jnp.clip(positions + 0.002 * gradients, 0, 1), means.mean()

    return jax.lax.scan(step, positions, jnp.arange(40))


def main() -> None:
    """Climbs once, and says what the callbacks left here."""
    positions, means = climb(points[:5] + 0.01)
    print(f"{len(history)} steps noted, the last one {history[-1][1]:.4f}, as the result says: {float(means[-1]):.4f}")
    print(f"the first ends at {np.asarray(positions[0]).round(3).tolist()}")


if __name__ == "__main__":
    main()
