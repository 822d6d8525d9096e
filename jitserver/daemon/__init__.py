"""The daemon: its lifecycle, its connections, and how it answers their requests."""
