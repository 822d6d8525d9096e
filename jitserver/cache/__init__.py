"""Where programs are kept: by call key, in memory and on the disk. Knows nothing of jax."""
