"""From the call of a jitted function to the program that answers it."""
