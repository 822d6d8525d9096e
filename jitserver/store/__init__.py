"""Programs on disk and in memory, and which of them crash the daemon. Does not depend on jax."""
