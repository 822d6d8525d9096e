"""The only package of the daemon that imports jax: traces, compiles and runs programs, and holds arrays."""
