"""The only place that imports jax: it traces, compiles, runs, and holds arrays, and hides devices from all else."""
