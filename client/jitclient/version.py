"""The version of both packages: they are one distribution."""

__version__ = "0.1.0"
