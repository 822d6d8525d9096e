"""Which programs were in progress when a daemon died. Does not depend on jax."""
