"""The functions and commands that users type."""
