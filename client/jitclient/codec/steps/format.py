"""What the pickles of a capture hold: which of its steps make what others can name."""

from typing import NamedTuple

from jitclient.codec.pickler import VERSION

FORMAT = 7
"""Part of the context of every key: raise it whenever the same function gets other bytes."""


class Head(NamedTuple):
    """The first of the three pickles of a capture; then come its steps, and what these were made for."""

    format: int = FORMAT
    cloudpickle: str = VERSION
    has_classes: bool = False


COMPLETES = "+"
"""In front of the name of a step that completes an object made before."""

NAMEABLE = frozenset({"class", "function", "new", "bare", "call", "jit", "partial", "treedef", "of_client"})
"""Objects that get an index that both sides know, after the extras."""

SHARED = NAMEABLE | {"list", "dict", "set", "bytearray", "cell", "trap"}
SHARED |= {"array", "object_array", "jax_array", "prng_key"}
"""Objects that are the same one wherever a result holds them."""

LOCATED = ("function", "source")
"""Functions and bodies of modules, whose places travel beside the program, in its order."""
