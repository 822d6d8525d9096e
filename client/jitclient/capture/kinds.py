"""Which steps of a program make what others can name."""

COMPLETES = "+"
"""In front of the name of a step that completes an object made before."""

NAMEABLE = frozenset({"class", "function", "new", "bare", "call", "jit", "partial"})
"""Objects that get an index that both sides know, after the extras."""

SHARED = NAMEABLE | {"list", "dict", "set", "bytearray", "cell", "array", "object_array", "jax_array", "prng_key"}
"""Objects that are the same one wherever a result holds them."""
