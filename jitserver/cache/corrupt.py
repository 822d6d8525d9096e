"""The error of stored data that cannot be used."""


class Corrupt(Exception):  # noqa: N818
    """What is stored is not what was written, or another version wrote it."""
