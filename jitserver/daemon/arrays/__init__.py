"""Arrays on this daemon: the memory budget, and named arrays."""
