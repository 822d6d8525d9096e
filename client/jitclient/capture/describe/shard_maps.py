"""Functions made by `jax.shard_map`, which store their mesh and axes in their cells when they are first traced."""

import sys
from collections.abc import Mapping
from types import FunctionType
from typing import Any

from jitclient.capture.user_code.names import MISSING, content_of

_HOME = "jax._src.shard_map"


def cells_after_trace(func: FunctionType) -> Mapping[str, Any]:
    """Return the cell contents that a trace under the current settings would store, by cell name.

    A capture always holds these contents, so it is the same before and after the trace. The result is empty for other
    functions.
    """
    if func.__globals__.get("__name__") != _HOME or not {"mesh", "axis_names"} <= {*func.__code__.co_freevars}:
        return {}
    held = dict(zip(func.__code__.co_freevars, map(content_of, func.__closure__ or ()), strict=True))
    mesh, axis_names = held["mesh"], held["axis_names"]
    if mesh is None:
        mesh = sys.modules["jax"].sharding.get_abstract_mesh()
    names = getattr(mesh, "axis_names", ())
    if MISSING in (mesh, axis_names) or not names or not isinstance(axis_names, (set, frozenset)):
        return {}
    return {"mesh": mesh, "axis_names": frozenset(axis_names or names)}
