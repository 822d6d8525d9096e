"""Handle of an array on the daemon, and its operations."""
