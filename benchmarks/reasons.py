"""Why a function may differ under `jitclient.jit`: a limit of JAX, or a decision in DESIGN.

Every other difference fails the run.
"""

_EFFECTS = "DESIGN: a program with side effects runs in the client's process, where its user expects them"

REASONS: dict[str, str] = {
    "jax.lax.dce_sink": _EFFECTS,
    "jax.lax.precv": _EFFECTS,
    "jax.lax.rng_uniform": "JAX: its generator has a hidden state in each process, and promises no values",
}
"""By the function's full name."""
