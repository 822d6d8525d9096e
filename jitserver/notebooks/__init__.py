"""Extension of IPython: the jits of a notebook's cells run on the daemon, and a magic shows what they use."""
