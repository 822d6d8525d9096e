"""Profiles of what daemons do: recorded while JAX's profiler records this process, and written beside its profile."""
