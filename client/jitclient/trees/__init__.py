"""Pytrees, with and without jax in the process."""
