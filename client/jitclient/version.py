"""Version of both packages, which are one distribution."""

__version__ = "0.1.0"

JAX = "jax>=0.10.2,<0.13"
"""The versions of jax that the tests run with, as in pyproject.toml."""


def is_supported(jax: str) -> bool:
    """Return whether the tests run with a version of jax."""
    oldest, beyond = (tuple(map(int, bound.split("."))) for bound in JAX.removeprefix("jax>=").split(",<"))
    return oldest <= tuple(int("0" + "".join(filter(str.isdigit, part))) for part in jax.split(".")[:3]) < beyond
