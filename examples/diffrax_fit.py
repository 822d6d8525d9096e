"""Fit an oscillator to data, with gradients through diffrax's solver. Run it twice: the second run traces nothing."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import optax

import jitclient

jitclient.install()

TIMES = np.linspace(0, 6, 40, dtype=np.float32)
optimizer = optax.adam(0.03)


def oscillator(t, y, args):
    """A damped oscillator: position and velocity."""
    position, velocity = y
    return velocity, -args["stiffness"] * position - args["damping"] * velocity


@jax.jit
def solve(args):
    """The solution at all times."""
    return diffrax.diffeqsolve(
        diffrax.ODETerm(oscillator),
        diffrax.Tsit5(),
        t0=0.0,
        t1=6.0,
        dt0=0.1,
        y0=(jnp.float32(1.0), jnp.float32(0.0)),
        args=args,
        saveat=diffrax.SaveAt(ts=TIMES),
        stepsize_controller=diffrax.PIDController(rtol=1e-4, atol=1e-4),
        throw=False,
    )


@jax.jit
def step(args, state, measured):
    """One step of Adam towards what was measured."""
    loss, gradients = jax.value_and_grad(lambda args: jnp.mean((solve(args).ys[0] - measured) ** 2))(args)
    updates, state = optimizer.update(gradients, state)
    return optax.apply_updates(args, updates), state, loss


truth = solve({"stiffness": 4.0, "damping": 0.3})
assert truth.result == diffrax.RESULTS.successful
args = {"stiffness": jnp.float32(3.0), "damping": jnp.float32(0.1)}
state = jax.jit(optimizer.init)(args)
for number in range(150):
    args, state, loss = step(args, state, truth.ys[0])
    if number % 50 == 0:
        print(f"step {number}: loss {float(loss):.4f}")
print(f"stiffness {float(args['stiffness']):.1f}, damping {float(args['damping']):.1f}")
