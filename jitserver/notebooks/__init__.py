"""Extension of IPython: the jits of a notebook's cells run on the daemon, and magics show what they use."""
