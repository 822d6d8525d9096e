"""Functions and commands that users type."""
