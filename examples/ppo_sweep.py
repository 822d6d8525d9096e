"""A sweep of 20 settings of PPO on many hosts: learning rates and seeds, each a training of `ppo.py`.

    python examples/ppo_sweep.py                                 # two workers on this machine
    python examples/ppo_sweep.py ssh://a/~/jit ssh://b/~/jit     # a worker on each of two machines
    python examples/ppo_sweep.py ray                             # a worker on each node of a Ray cluster

The modules of the program go with it, so the hosts need no copy of `ppo.py`. The second run of the sweep traces and
compiles nothing on any of them.
"""

import itertools
import sys

import jax
import numpy as np
import ppo

import jitclient

RATES = [3e-4 * 2**number for number in range(5)]
SEEDS = range(4)
UPDATES = 5

train = jitclient.jit(ppo.make_train(UPDATES))


def score(rate, seed):
    """How many steps a pole stands for after the training, in the last update."""
    _, (lengths, _) = train(jax.random.key(seed), rate)
    return float(np.asarray(lengths)[-1])


def main(hosts) -> None:
    """Runs the sweep, and prints what each rate has learnt."""
    rates, seeds = zip(*itertools.product(RATES, SEEDS), strict=True)
    with jitclient.pool(hosts) as pool:
        scores = list(pool.map(score, rates, seeds))
    means = np.reshape(scores, (len(RATES), len(SEEDS))).mean(axis=1)
    for rate, mean in zip(RATES, means, strict=True):
        print(f"rate {rate:.4f}: a pole stands for {mean:.1f} steps")
    print(f"best rate {RATES[int(means.argmax())]:.4f}")


if __name__ == "__main__":
    main(sys.argv[1:] or ["local:2"])
