"""A module that the programs import, as a user's own module beside them."""

import enum

_FACTOR = 1.25


class Constants:
    OFFSET = 0.5


class Colour(enum.Enum):
    RED = 1
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 5


def scaled(x, factor=_FACTOR):
    return x * factor


def up(x):
    return x + _FACTOR


def down(x):
    return x - _FACTOR
