"""The daemon: its life, its connections, and the answers to what they ask."""
