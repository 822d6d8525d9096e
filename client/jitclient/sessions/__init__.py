"""One client's stay at a daemon: found or started, greeted, and talked with."""
