"""Fit a linear model and leave the data and the weights on the daemon, where `evaluate.py` finds them."""

import jax
import numpy as np
from model import loss_of

import jitclient


def load():
    """Stands for an expensive load: it runs only if the daemon does not hold its result yet."""
    print("loading the data")
    random = np.random.default_rng(0)
    x = random.normal(size=(1000, 3)).astype(np.float32)
    return {"x": x, "y": x @ np.array([1.0, -2.0, 3.0], np.float32)}


@jitclient.jit
def step(weights, x, y):
    """One step of gradient descent."""
    return weights - 0.1 * jax.grad(loss_of)(weights, x, y)


def main() -> None:
    """Keeps the data and the weights under names."""
    data = jitclient.keep("shared-example/data", load, deps=[])  # it reads nothing from outside
    weights = jitclient.device_put(np.zeros(3, np.float32))
    for _ in range(20):
        weights = step(weights, data["x"], data["y"])
    jitclient.keep("shared-example/weights", weights)  # already on the daemon: nothing is copied
    print(f"loss {float(loss_of(weights, data['x'], data['y'])):.6f}")


if __name__ == "__main__":
    main()
