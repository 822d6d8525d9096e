"""Where programs are kept: by call key, in memory (and later on disk). Knows nothing of jax."""
