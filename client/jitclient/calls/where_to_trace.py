"""Where the function of a call is traced, and why: one table of reasons, of which the first that applies counts.

`calls/miss.py` collects the facts and asks again whenever it has learned more: before it captures the function, after
that, and once it has the own trace. Facts that are not known yet have values for which no reason applies.

Not in the table:

- what each call checks, because it must be fast: whether the call is `PLAIN` (`jaxside/unchanged.py`), whether it had
  the answer `HERE` before (`calls/general_path.py`), whether a call plan covers it (`calls/plan.py`);
- whether the function can be captured, the daemon accepts it, the traces agree (`calls/agreement.py`) and `jax.export`
  serializes the program (`calls/own_trace.py`): only an attempt shows that. Its error becomes the fact `refusal`, or is
  the last word;
- failures: of the daemon (`calls/general_path.py`), or of jitserver (`calls/failures.py`);
- functions that flax keeps (`nnx/jitted.py`), and operations on arrays that fail (`arrays/dispatch.py`): they have no
  program here, so there is none to trace.
"""

import dataclasses
import enum
from collections.abc import Callable
from typing import Literal, NamedTuple

from jitclient.errors import CaptureError


class Where(enum.Enum):
    """Places where a function is traced."""

    PLAIN = "in this process, by jax.jit alone"
    HERE = "in this process, where the call runs as well"
    EACH_PROCESS = "in each process, and the daemon compiles and runs the program"
    CLIENT = "in this process, for all others, and the daemon compiles and runs the program"
    DAEMON = "on the daemon alone, so an exception of its trace is that of the call"
    DAEMON_FIRST = "on the daemon, and in this process only if that fails"
    BOTH = "on the daemon and in this process, and both traces must agree"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Facts:
    """Facts of a call, so far as they are known."""

    # Of the call.
    jit_is_disabled: bool = False
    is_part_of_trace: bool = False
    is_operation: bool = False  # an array operation of jitclient
    has_deps: bool = False  # declared inputs
    # Of this process.
    verify: Literal["off", "new", "always"] = "new"
    can_trace: bool = True
    is_one_of_several: bool = False
    # Of the capture.
    set_order: str = ""  # how the function depends on the order of sets
    refusal: str = ""  # why other processes cannot use this process's program of the function
    crashes_daemon: bool = False  # as the cause of the refusal
    # Of the own trace, once its program is to be sent.
    uses_outer_trace: bool = False
    flattens_differently: bool = False
    setting: str = ""  # of JAX, which applies to a whole process
    is_placed: bool = False
    callbacks: str = ""
    foreign_functions: str = ""
    # Of the own trace, once other processes are to find its program.
    unobserved: str = ""
    trace_changes: str = ""


class Decision(NamedTuple):
    """Decision where to trace a function."""

    where: Where
    reason: str  # for the user

    def raise_if_here(self) -> None:
        """Raise if the call runs in this process.

        Raises:
            CaptureError: the call runs in this process.
        """
        if self.where is Where.HERE:
            raise CaptureError(self.reason)


class Reason(NamedTuple):
    """Row of the table: if it applies, the function is traced `where`, and the user reads the sentence."""

    applies: Callable[[Facts], object]
    where: Where
    sentence: str  # with names of facts in braces


REASONS = (
    Reason(lambda facts: facts.jit_is_disabled, Where.PLAIN, "runs in this process: jit is disabled"),
    Reason(lambda facts: facts.is_part_of_trace, Where.PLAIN, "becomes part of the program that is being traced"),
    Reason(
        lambda facts: facts.is_one_of_several,
        Where.HERE,
        "this process is one of several (jax.distributed), which the daemon does not support",
    ),
    # The same program in another form would crash the next daemon.
    Reason(lambda facts: facts.crashes_daemon, Where.HERE, "{refusal}"),
    Reason(lambda facts: facts.refusal and not facts.can_trace, Where.HERE, "{refusal}"),
    Reason(lambda facts: facts.uses_outer_trace, Where.HERE, "the function uses a value of another trace"),
    Reason(lambda facts: facts.flattens_differently, Where.HERE, "JAX flattens the arguments differently"),
    Reason(
        lambda facts: facts.setting,
        Where.HERE,
        "the setting {setting} applies to a whole process, so the daemon cannot use it for one call",
    ),
    Reason(
        lambda facts: facts.is_placed,
        Where.HERE,
        "the program refers to shardings or devices of this process, so it cannot be sent to the daemon",
    ),
    Reason(lambda facts: facts.callbacks, Where.HERE, "the callbacks stay in this process: {callbacks}"),
    Reason(
        lambda facts: facts.foreign_functions,
        Where.HERE,
        "the program calls the {foreign_functions}, whose code is only in this process",
    ),
    Reason(lambda facts: facts.refusal, Where.EACH_PROCESS, "{refusal}"),
    Reason(lambda facts: facts.unobserved, Where.EACH_PROCESS, "{unobserved}"),
    Reason(lambda facts: facts.trace_changes, Where.EACH_PROCESS, "the trace changes {trace_changes}"),
    Reason(lambda facts: facts.set_order, Where.CLIENT, "{set_order}"),
    Reason(lambda facts: facts.has_deps, Where.CLIENT, "the function has declared inputs"),
    Reason(lambda facts: not facts.can_trace, Where.DAEMON, "this process cannot trace functions"),
    Reason(
        lambda facts: facts.is_operation and facts.verify != "always", Where.DAEMON, "the program is jitclient's own"
    ),
    Reason(lambda facts: facts.verify == "off", Where.DAEMON_FIRST, "JITSERVER_VERIFY=off"),
    Reason(lambda facts: True, Where.BOTH, "a new program is compared with a trace in this process"),
)


def where_to_trace(facts: Facts) -> Decision:
    """Decide where to trace the function of a call."""
    reason = next(reason for reason in REASONS if reason.applies(facts))
    return Decision(reason.where, reason.sentence.format_map(vars(facts)))
