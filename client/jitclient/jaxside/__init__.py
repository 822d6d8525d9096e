"""The only contact of a client with jax: settings, trees, types, shardings, and what is not public."""
