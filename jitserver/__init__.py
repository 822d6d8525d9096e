"""jitserver: the daemon that keeps JAX functions compiled, and its command line."""

from jitclient.version import __version__ as __version__
