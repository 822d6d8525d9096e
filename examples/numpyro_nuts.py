"""Sample a posterior with numpyro's NUTS. Run it twice: the second run traces and compiles nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS

import jitclient


def eight_schools(sigma, y=None):
    """Effects of coaching in eight schools, which share a mean and a spread."""
    mean = numpyro.sample("mean", dist.Normal(0.0, 5.0))
    spread = numpyro.sample("spread", dist.HalfCauchy(5.0))
    with numpyro.plate("schools", 8):
        offset = numpyro.sample("offset", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(mean + spread * offset, sigma), obs=y)


@jitclient.jit(deps=["CI", "PYTEST_XDIST_WORKER"])  # numpyro looks there whether to show its progress
def sample(key, sigma, y):
    """The whole of warm-up and sampling is one program."""
    chain = MCMC(NUTS(eight_schools), num_warmup=300, num_samples=500, progress_bar=False)
    chain.run(key, sigma, y=y)
    return chain.get_samples()


y = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0], np.float32)
sigma = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0], np.float32)
samples = sample(jax.random.key(0), sigma, y)
for name in ("mean", "spread"):
    print(f"{name}: {float(jnp.mean(samples[name])):.1f} +- {float(jnp.std(samples[name])):.1f}")
