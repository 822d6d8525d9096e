"""The daemon: its lifecycle, its connections, and the handlers of client requests."""
