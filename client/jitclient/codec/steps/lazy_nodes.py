"""Classes of libraries that tell JAX how they flatten when their first object is made, which may not have been here."""

import sys
from typing import Any


def register(kind: type) -> None:
    """Have a class registered if it is one of those; its first object would do the same."""
    base: Any
    for base in kind.__mro__:
        if base.__module__ == "distrax._src.utils.jittable" and base.__name__ == "Jittable":
            base.__new__(kind)
            return
    init: Any = vars(kind).get("__init__")
    if getattr(init, "__globals__", {}).get("__name__") == "chex._src.dataclass":
        sys.modules["chex._src.dataclass"].register_dataclass_type_with_jax_tree_util(kind)
