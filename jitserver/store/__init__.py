"""Storage of programs in memory and on disk, and of crash records. Does not depend on jax."""
