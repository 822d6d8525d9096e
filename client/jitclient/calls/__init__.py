"""Calls of jitted functions: from a call to the program that answers it."""

MISS = object()
"""Result of a call plan for a call that it does not cover."""
