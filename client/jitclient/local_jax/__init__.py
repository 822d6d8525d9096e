"""What this process's own jax is asked and told: its settings, its traces, its words for places and types."""
