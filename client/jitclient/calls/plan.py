"""Call plans, the fast path: one flat function for each program and each combination of argument types.

A plan makes the call, or returns MISS without any effect, and the general path makes the call.

Covered are arrays of the daemon, numpy arrays and scalars, uncommitted jax arrays of the client or those with a copy on
the daemon, and Python numbers; in trees, by position or by name; static arguments; donation of arrays of the daemon.

Left to the general path are declared inputs (`deps`), committed jax arrays, large jax arrays without a copy, trees with
their own wire order, and donation by value.
"""

import functools
import operator
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

from jitclient.arrays.array import Array, fetch_together, keep_call, make_handles
from jitclient.calls import MISS, copies
from jitclient.calls.arguments import value_of
from jitclient.calls.attempts import raise_failure
from jitclient.calls.program import Program
from jitclient.capture.graph.watch import UNBOUND_ERRORS
from jitclient.errors import ArrayBudgetExceeded, DaemonDraining, ProgramLost
from jitclient.jaxside import context, tree, unchanged
from jitclient.jaxside.interop import is_jax_array
from jitclient.jaxside.options import Static
from jitclient.session import process
from jitclient.wire.array_transport import host_form, inline_limit, is_key, nbytes_of
from jitclient.wire.messages import Attached, Call, Run, Spec

Plan = Callable[[tuple[Any, ...], dict[str, Any]], Any]
"""Function of positional arguments and keywords. If it raises `DaemonLost`, the daemon may have run the call."""

_MAX_PLANS = 4
_NUMBERS = (bool, int, float, complex)
_NOT_EXECUTED = ArrayBudgetExceeded, DaemonDraining, ProgramLost
# Compared by value; other static arguments are equal only if they are identical.
_COMPARED = frozenset({bool, int, str, bytes})


class SplitCall(NamedTuple):
    """Arguments of a call, with the parts into which they were split."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    statics: Sequence[Static]
    leaves: Sequence[Any]
    shape: Hashable


Repeat = Callable[[SplitCall, Program, Sequence[Any]], list[Array]]
"""Function that makes a call of a program again, with copies of its leaves."""


def renewed(
    plans: tuple[Plan, ...], program: Program, settings: context.Context, call: SplitCall, repeat: Repeat
) -> tuple[Plan, ...]:
    """Return the plans of a function after a call that none of them covered.

    From the second such call on, the plans include one for it. `settings` are the JAX settings of the program's
    look-up.
    """
    kinds = tuple([leaf.dtype if type(leaf) is np.ndarray else type(leaf) for leaf in call.leaves])
    if kinds not in program.plans:
        program.plans[kinds] = []
        return plans
    made = program.plans[kinds]
    if made is None:
        return plans
    if any(_may_have_copy_later(call.leaves, n, program) for n in program.copied):
        return plans
    left = [plan for plan in plans if plan not in made]
    # A plan that missed this call would also miss the next.
    if made == [] or len(left) < len(plans):
        is_unchanged = unchanged.check()
        if not (is_unchanged() and context.current() == settings and is_unchanged()):
            # Another thread has changed the settings since.
            return plans
        plan = plan_of(program, is_unchanged, call, repeat)
        made = program.plans[kinds] = None if plan is None else [plan]
    return (*(made or ()), *left)[:_MAX_PLANS]


def _may_have_copy_later(leaves: Sequence[Any], n: int, program: Program) -> bool:
    leaf = leaves[n]
    if type(leaf) is Array or nbytes_of(program.specs[n]) <= inline_limit(len(leaves)):
        return False
    return is_jax_array(leaf) and copies.copy_of(leaf, program.session) is None


def plan_of(program: Program, is_unchanged: Callable[[], bool], call: SplitCall, repeat: Repeat) -> Plan | None:
    """Make a plan for calls like a finished one; return None if plans cannot cover such calls."""
    leaves = call.leaves
    copied = [is_jax_array(leaf) and copies.copy_of(leaf, program.session) is not None for leaf in leaves]
    is_kept = Array not in map(type, leaves) and program.can_queue_values()
    is_queued = is_kept or Array in map(type, leaves)
    wants = _wants(program, leaves, copied, is_queued)
    if wants is None:
        return None
    session, prepared, generation = program.session, program.prepared, program.generation
    leaves_of = _leaves_of(call)
    statics, shape = call.statics, call.shape
    watch = program.capture.watch if program.capture is not None else None
    executable, results, inline, unflatten = prepared.executable, prepared.results, program.inline, program.unflatten
    call_now, waits, moving = program.call_now, prepared.may_raise, program.moving
    count, forms, max_inline = len(results), list(map(host_form, results)), inline_limit(len(leaves))
    taken = program.used_donations[0] if program.used_donations else ()

    def plan(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if process.current is not session or session.program_generation != generation or not is_unchanged():
            return MISS
        if watch is not None:
            try:
                for check in watch.checks:
                    if not check():
                        return MISS
            except UNBOUND_ERRORS:
                return MISS
        if moving.calls_left <= 1:
            return MISS
        leaves: Any = args if leaves_of is None else leaves_of(args, kwargs)
        if leaves is None or len(leaves) != len(wants) or (leaves_of is None and kwargs):
            return MISS
        arguments, attachments, held = [], [], []
        with session.lock:
            if session.connection is None or session.program_generation != generation:
                return MISS
            own = session.generation
            for leaf, (kind, spec, given, dtype, is_own) in zip(leaves, wants):  # noqa: B905  (equal lengths, and faster)
                if type(leaf) is not kind:
                    return MISS
                if kind is Array:
                    if leaf._session is not session or leaf._generation != own or leaf.deleted:
                        return MISS
                    if (leaf.spec is not spec and leaf.spec != spec) or (leaf._local is not None and leaf.is_deleted()):
                        return MISS
                    arguments.append(leaf._handle)
                elif given is Array:
                    copy = copies.copy_of(leaf, session)
                    if copy is None or copy.spec != spec:
                        return MISS
                    held.append(copy)
                    arguments.append(copy._handle)
                elif given is None:
                    try:
                        arguments.append(np.asarray(leaf, dtype).tobytes())
                    except OverflowError:
                        return MISS
                elif leaf.shape != spec.shape or (leaf.dtype is not given and leaf.dtype != given):
                    return MISS
                elif dtype is None:
                    if leaf.committed or leaf.is_deleted():
                        return MISS
                    arguments.append(value_of(leaf, spec).tobytes())
                elif is_own:
                    if leaf.committed or leaf.weak_type != spec.weak_type or leaf.is_deleted():
                        return MISS
                    arguments.append(np.asarray(leaf).tobytes())
                else:
                    value = leaf if given is dtype else leaf.astype(dtype)
                    if value.nbytes <= max_inline:
                        arguments.append(value.tobytes())
                    else:
                        arguments.append(Attached(value.nbytes))
                        attachments.append(value)
            if is_queued and taken and len(set(map(id, leaves))) < len(leaves):
                return MISS
            try:
                if waits or (attachments and not is_queued):
                    arrays = call_now(arguments, attachments, leaves)
                else:  # as in `Program.call` and `Program.call_now`
                    first = session.next_handle
                    session.next_handle = first + count
                    arrays = make_handles(session, first, results)
                    if is_queued:
                        session.call_later(executable, arguments, first, attachments, generation)
                        for position in taken:
                            taken_leaf = leaves[position]
                            taken_leaf.deleted = True
                            if taken_leaf._local is not None:
                                taken_leaf.note_donation()
                        if len(inline) > 1:
                            fetch_together([arrays[n] for n in inline])
                        if is_kept:
                            made = SplitCall(args, kwargs, statics, leaves, shape)
                            again = functools.partial(repeat, made, program)
                            keep_call(arrays, again, leaves)
                    else:
                        run = Run([Call(executable, arguments, first)], (), [], (), tuple(map(first.__add__, inline)))
                        reply, _ = session.run(run, program_generation=generation)
                        if reply.failures:
                            raise_failure(reply)
                        for n, value in zip(inline, reply.values):  # noqa: B905
                            if type(value) is bytes:
                                arrays[n]._value = np.ndarray(*forms[n], value)
            except _NOT_EXECUTED:
                return MISS
        moving.calls_left -= 1
        return unflatten(arrays)

    return plan


_Want = tuple[Any, Spec, Any, Any, bool]
"""Requirements on a leaf: its type, its spec, its dtype (`Array` if it has a copy on the daemon; None for numbers), its
wire dtype (None for typed keys), and whether it is an array of the client's own jax.
"""


def _wants(program: Program, leaves: Sequence[Any], copied: Sequence[bool], is_queued: bool) -> list[_Want] | None:
    """Return the requirements on the leaves of a covered call; None if plans cannot cover such calls."""
    prepared = program.prepared
    by_value = any(type(leaves[position]) is not Array for position in prepared.donated)
    if program.order is not None or by_value or (prepared.donated and not program.used_donations):
        return None
    max_inline = inline_limit(len(program.inline))
    if not is_queued and any(nbytes_of(prepared.results[n]) > max_inline for n in program.inline):
        return None
    wants: list[_Want] = []
    for leaf, spec, has_copy in zip(leaves, program.specs, copied, strict=True):
        kind = type(leaf)
        dtype = None if kind is Array else host_form(spec)[1]
        if has_copy:
            wants.append((kind, spec, Array, None, True))
        elif kind is Array:
            wants.append((kind, spec, None, None, False))
        elif kind is not np.ndarray and nbytes_of(spec) > inline_limit(len(leaves)):
            return None
        elif kind in _NUMBERS:
            wants.append((kind, spec, None, dtype, False))
        elif is_jax_array(leaf) and not getattr(leaf, "committed", True):
            wants.append((kind, spec, leaf.dtype, None if is_key(spec) else dtype, True))
        elif kind is np.ndarray or (issubclass(kind, np.generic) and kind.__module__ == "numpy"):
            wants.append((kind, spec, dtype if leaf.dtype == dtype else leaf.dtype, dtype, False))
        else:
            return None
    return wants


def _leaves_of(call: SplitCall) -> Callable[[tuple[Any, ...], dict[str, Any]], Sequence[Any] | None] | None:
    """Return a function that returns the leaves of a call, or None if its tree differs.

    Return None instead of a function if the arguments themselves are the leaves.
    """
    args, kwargs, statics, leaves, shape = call
    if not kwargs and not statics and len(args) == len(leaves) and all(map(operator.is_, args, leaves)):
        return None
    count, names = len(args), frozenset(kwargs)
    numbers = [where for where, _ in statics if isinstance(where, int)]
    left_out = [where for where, _ in statics if isinstance(where, str)]
    places = [n for n in range(count) if n not in numbers]

    def leaves_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Any] | None:
        if len(args) != count or kwargs.keys() != names:
            return None
        for where, value in statics:
            given = args[where] if type(where) is int else kwargs[where]  # type: ignore[index]
            if given is not value and (
                type(given) is not type(value) or type(value) not in _COMPARED or given != value
            ):
                return None
        if numbers:
            args = tuple(map(args.__getitem__, places))
        if left_out:
            kwargs = kwargs.copy()
            for name in left_out:
                del kwargs[name]
        leaves, now = tree.flatten((args, kwargs))
        return leaves if now == shape else None

    return leaves_of
