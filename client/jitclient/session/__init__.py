"""Session of one client with a daemon: finding or starting it, the handshake, and the exchange of messages."""
