"""The client's only contact with jax: settings, pytrees, types, shardings, and uses of jax's private modules."""
