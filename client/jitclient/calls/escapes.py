"""Values of a trace on the daemon that traced code kept in an object of the user's: here a tracer is left there, which
is what plain JAX leaves, and which raises `jax.errors.UnexpectedTracerError` wherever it is used.
"""

import importlib.util
from collections.abc import Callable, Iterable
from typing import Any

from jitclient.codec.capture import Capture
from jitclient.local_jax import leaked
from jitclient.trees import tree
from jitclient.wire.messages import Escape


def leave(escapes: Iterable[Escape], captured: Capture, fun: Callable[..., Any], name: str) -> None:
    """Leaves what the trace of a function left, where this process can have jax. Imports it then."""
    for escape in escapes:
        if importlib.util.find_spec("jax") is not None:
            structure = tree.decode(escape.tree, captured.object_at)
            value = tree.unflattener(structure)(leaked.left_by(fun, name, escape.leaves))
            captured.holders.put(escape.holder, escape.name, value)
