"""jitserver: the daemon that keeps JAX functions compiled, and the command line that looks into it."""

from jitclient.version import __version__ as __version__
