"""Explanation of a call's look-up: hit or miss, and on a miss, the differences from the most similar program."""

import dataclasses
import functools
import types
from collections.abc import Callable
from typing import Any

from jitclient.calls.compile_log import NONE_SIMILAR
from jitclient.calls.decorator import jit
from jitclient.calls.identity import explained as explained_by
from jitclient.calls.identity import identify
from jitclient.calls.miss import capture_budget
from jitclient.calls.remote_function import RemoteFunction
from jitclient.calls.where_to_trace import Facts, Where, where_to_trace
from jitclient.core.tracebacks import api_boundary
from jitclient.errors import CaptureError, DaemonError
from jitclient.jaxside import context, tree
from jitclient.jaxside.interop import is_tracer
from jitclient.session import process
from jitclient.session.handshake import ask
from jitclient.wire import labels
from jitclient.wire.explaining import Difference
from jitclient.wire.introspection import EntryInfo

_MAX_SHOWN = 12
_LEVELS = {"L0": "this process has called it", "L1": "the daemon has it", "L2": "the lab's cache has it"}


@dataclasses.dataclass(frozen=True)
class Explanation:
    """Printable result of `explain`: whether a call would find its program, and if not, why.

    Attributes:
        program: short form of the call: `step(f32[33,8])`.
        hit: whether the program exists.
        level: "L0": this process has called it; "L1": the daemon has it; "L2": the lab's cache has it; None: a miss.
        differences: for a miss, the differences of the call from the most similar program.
        nearest: call key of that program.
        cost_seconds: time that making the program took; for a miss, the time that making the most similar one took.
        reason: reason why the daemon cannot make the program, does not answer, or only compiles it.
        note: reason why processes with another hash seed do not find the program.
    """

    program: str
    hit: bool
    level: str | None = None
    differences: tuple[Difference, ...] = ()
    nearest: str | None = None
    cost_seconds: float | None = None
    reason: str | None = None
    note: str | None = None

    def __str__(self) -> str:
        cost = "" if self.cost_seconds is None else labels.seconds(self.cost_seconds)
        if self.hit:
            lines = [f"hit ({self.level}: {_LEVELS[self.level or 'L1']}{f', made in {cost}' if cost else ''})"]
        elif self.reason is not None:
            lines = [self.reason]
        else:
            lines = [f"miss{f', about {cost} to make' if cost else ''}"]
            lines += [NONE_SIMILAR] if self.nearest is None else []
            lines += map(str, self.differences[:_MAX_SHOWN])
            more = len(self.differences) - _MAX_SHOWN
            lines += [f"and {more} more differences"] if more > 0 else []
        lines += [self.note] if self.note else []
        return f"{self.program}: " + "\n  ".join(lines)


@api_boundary
def explain(fun: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Explanation:
    """Check whether a call would find its program, and if not, compare its key with that of the most similar one.

    Does not trace or compile, and starts no daemon. (If systemd listens for one, connecting starts it.)

    Args:
        fun: a function made by `jitclient.jit`, `nnx.jit` or `eqx.filter_jit`, or a plain function, which is treated as
            if jitted without keywords.
        *args: the arguments of the call.
        **kwargs: the keyword arguments of the call.

    Raises:
        TypeError: an argument is not a tree of arrays.

    Example:
        >>> print(jitclient.explain(step, params, x))
        step(f32[8], f32[33,8]): miss, about 2.3 s to make
          argument x: float32[32,8] -> float32[33,8]
    """
    if isinstance(fun, types.MethodType) and isinstance(fun.__func__, RemoteFunction):
        args, fun = (fun.__self__, *args), fun.__func__
    if hasattr(fun, "on_daemon"):
        fun, args, kwargs = fun.on_daemon(args, kwargs)
    remote: RemoteFunction[..., Any] = fun if isinstance(fun, RemoteFunction) else jit(fun)
    is_part_of_trace = any(map(is_tracer, tree.flatten((args, kwargs))[0]))
    decision = where_to_trace(Facts(jit_is_disabled=context.jit_is_disabled(), is_part_of_trace=is_part_of_trace))
    if decision.where is Where.PLAIN:
        return Explanation(remote.__name__, hit=False, reason=decision.reason)
    path = remote.general_path()
    wanted, known = path.look(args, kwargs)
    program = wanted.label
    if known:
        return Explanation(program, hit=True, level="L0")
    try:
        budget = capture_budget(wanted, path.capture_costs)
        identity = identify(wanted, functools.partial(path.fresh_capture, budget=budget))
        request = identity.request(identity.lookup)
        explained = explained_by(functools.partial(ask, process.session().settings), request, identity.captured)
    except CaptureError as error:
        return Explanation(program, hit=False, reason=f"traced in the client: {error}")
    except DaemonError as error:
        return Explanation(program, hit=False, reason=f"unknown: {error}")
    note = identity.order or None
    if explained.found is not None and not explained.crashes:
        return Explanation(program, hit=True, level="L1", cost_seconds=_cost(explained.found), note=note)
    if explained.lab_has_trace_only and not explained.crashes:
        why = "compiled here: the lab's cache has the trace, made for another kind of machine"
        return Explanation(program, hit=False, cost_seconds=explained.lab_seconds, reason=why, note=note)
    if explained.lab_seconds is not None and not explained.crashes:
        return Explanation(program, hit=True, level="L2", cost_seconds=explained.lab_seconds, note=note)
    reason = explained.crashes or (f"traced in the client: {explained.refusal}" if explained.refusal else None)
    nearest = explained.nearest
    if reason or nearest is None:
        return Explanation(program, hit=False, reason=reason, note=note)
    return Explanation(program, False, None, explained.differences, nearest.key, _cost(nearest), note=note)


def _cost(entry: EntryInfo) -> float:
    return sum(entry.seconds.values())
