"""Programs that benchmarks run in fresh processes."""
