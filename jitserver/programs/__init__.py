"""Traces, compiles and runs programs. With `devices`, the only package of the daemon that imports jax."""
