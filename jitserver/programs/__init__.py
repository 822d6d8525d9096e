"""Tracing, compiling and running of programs: the only package of the daemon that imports jax."""
