"""The protocol between client and daemon, used by both sides. `messages` is the contract on one page."""
