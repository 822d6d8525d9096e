"""One client's session with a daemon: find or start it, shake hands, exchange messages."""
