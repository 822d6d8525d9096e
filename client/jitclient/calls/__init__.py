"""From the call of a jitted function to the program that answers it."""

MISS = object()
"""What a call plan returns for a call that it does not cover."""
