"""The interface to this process's own jax: settings, traces, shardings and types."""
