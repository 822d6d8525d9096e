"""A user's own package."""
