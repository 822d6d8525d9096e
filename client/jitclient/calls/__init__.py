"""From the call of a jitted function to the program that answers it."""

MISS = object()
"""What a plan returns where a call is not like the one that it was made for."""
