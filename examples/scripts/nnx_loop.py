"""Flax NNX: a network with dropout and batch normalization, an optimizer and metrics, trained in a Python loop."""

import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx


class Net(nnx.Module):
    """Two layers."""

    def __init__(self, rngs):
        self.first = nnx.Linear(8, 64, rngs=rngs)
        self.norm = nnx.BatchNorm(64, rngs=rngs)
        self.dropout = nnx.Dropout(0.1, rngs=rngs)
        self.second = nnx.Linear(64, 4, rngs=rngs)

    def __call__(self, x):
        return self.second(self.dropout(nnx.relu(self.norm(self.first(x)))))


def loss_of(model, x, y):
    scores = model(x)
    return optax.softmax_cross_entropy_with_integer_labels(scores, y).mean(), scores


@nnx.jit
def train_step(model, optimizer, metrics, x, y):
    (loss, scores), gradients = nnx.value_and_grad(loss_of, has_aux=True)(model, x, y)
    metrics.update(loss=loss, logits=scores, labels=y)
    optimizer.update(model, gradients)


@nnx.jit
def right_of(model, x, y):
    return jnp.mean(jnp.argmax(model(x), axis=1) == y)


random = np.random.default_rng(0)
x = random.normal(size=(1024, 8)).astype(np.float32)
y = (x[:, 0] * x[:, 1] > 0) * 2 + (x[:, 2] > 0)
model = Net(nnx.Rngs(0))
optimizer = nnx.Optimizer(model, optax.adamw(1e-2), wrt=nnx.Param)
metrics = nnx.MultiMetric(accuracy=nnx.metrics.Accuracy(), loss=nnx.metrics.Average("loss"))
for epoch in range(5):
    model.train()
    for start in range(0, len(x), 128):
        train_step(model, optimizer, metrics, x[start : start + 128], y[start : start + 128])
    found = metrics.compute()
    metrics.reset()
    print(f"epoch {epoch}: loss {found['loss']:.3f}, accuracy {found['accuracy']:.2f}")
model.eval()
print(f"in the end {right_of(model, x, y):.2f}")
