"""Fit a logistic regression with numpyro's SVI. Run it twice: the second run traces and compiles nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal

import jitclient

jitclient.install()


def model(x, labels=None):
    """A logistic regression with a prior on its weights."""
    weights = numpyro.sample("weights", dist.Normal(jnp.zeros(x.shape[1]), 1.0).to_event(1))
    bias = numpyro.sample("bias", dist.Normal(0.0, 1.0))
    with numpyro.plate("points", len(x)):
        numpyro.sample("label", dist.Bernoulli(logits=x @ weights + bias), obs=labels)


@jax.jit
def fit(key, x, labels):
    """All steps of the optimization are one program."""
    svi = SVI(model, AutoNormal(model), numpyro.optim.Adam(0.05), Trace_ELBO())
    found = svi.run(key, 300, x, labels, progress_bar=False)
    return found.params, found.losses


random = np.random.default_rng(0)
x = random.normal(size=(256, 3)).astype(np.float32)
labels = (x @ np.array([2.0, -1.0, 0.5], np.float32) + random.logistic(size=256) > 0).astype(np.float32)
params, losses = fit(jax.random.key(0), x, labels)
for number in range(0, 300, 100):
    print(f"step {number}: loss {float(losses[number]):.1f}")
print("weights", " ".join(f"{weight:.2f}" for weight in np.asarray(params["weights_auto_loc"])))
