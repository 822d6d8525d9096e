"""Version of both packages, which are one distribution."""

__version__ = "0.1.0"
