"""Which programs were under way when a daemon died. Knows nothing of jax."""
