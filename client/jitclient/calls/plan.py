"""The call that was made before, once more: one flat function for each program and each set of kinds of arguments.

It makes the call, or says MISS: then nothing was done, and the general way decides, or says what is wrong.

Covered are arrays of the daemon, numpy's arrays and scalars, arrays of the client's own jax that nobody has placed, or
that have a copy on the daemon, and Python's numbers; in trees or not, by position or by name; static arguments; and
donation of arrays of the daemon.

Left to the general way: declared inputs (`deps`), arrays of the client's own jax that were placed, or that are too
large for a message and have no copy, trees whose leaves travel in an order of their own, donation by value, and
programs that may raise and are given arrays of the daemon.
"""

import operator
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from jitclient.arrays.array import Array, looked_at_together, make_handles
from jitclient.calls import MISS, copies
from jitclient.calls.arguments import value_of
from jitclient.calls.program import Program
from jitclient.codec.graph.watch import GONE
from jitclient.errors import ArrayBudgetExceeded, DaemonDraining, ProgramLost
from jitclient.local_jax import as_before, context
from jitclient.local_jax.interop import is_jax_array
from jitclient.sessions import process
from jitclient.tracing.options import Static
from jitclient.trees import tree
from jitclient.wire.array_transport import host_form, inline_most, is_key, nbytes_of
from jitclient.wire.messages import Attached, Call, Run, Spec

Plan = Callable[[tuple[Any, ...], dict[str, Any]], Any]
"""Takes positional arguments and keywords.

Raises:
    DaemonLost: the daemon went away; nothing tells whether the call ran.
    BaseException: what the call raised, as its own type where this process has that loaded.
"""

_MOST_PLANS = 4
_NUMBERS = (bool, int, float, complex)
_NOT_RUN = ArrayBudgetExceeded, DaemonDraining, ProgramLost
_COMPARED = frozenset({bool, int, str, bytes})  # other static arguments are the same only where they are one object


def renewed(
    plans: tuple[Plan, ...],
    program: Program,
    settings: context.Context,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    statics: Sequence[Static],
    leaves: Sequence[Any],
    shape: Hashable,
) -> tuple[Plan, ...]:
    """The plans of a function after a call that none of them made: with one for such calls, from the second on.

    `settings` are those that the program was looked up under.
    """
    kinds = tuple([leaf.dtype if type(leaf) is np.ndarray else type(leaf) for leaf in leaves])
    if kinds not in program.plans:
        program.plans[kinds] = []
        return plans
    made = program.plans[kinds]
    if made is None:
        return plans
    if any(_may_have_copy_later(leaves[n], program.specs[n], len(leaves), program) for n in program.copied):
        return plans
    left = [plan for plan in plans if plan not in made]
    if made == [] or len(left) < len(plans):  # one that missed such a call will miss the next
        is_as_before = as_before.check()
        if not (is_as_before() and context.current() == settings and is_as_before()):
            return plans  # another thread has changed them since
        plan = plan_of(program, is_as_before, args, kwargs, statics, leaves, shape)
        made = program.plans[kinds] = None if plan is None else [plan]
    return (*(made or ()), *left)[:_MOST_PLANS]


def _may_have_copy_later(leaf: Any, spec: Spec, count: int, program: Program) -> bool:
    if type(leaf) is Array or nbytes_of(spec) <= inline_most(count):
        return False
    return is_jax_array(leaf) and copies.copy_of(leaf, program.session) is None


def plan_of(
    program: Program,
    is_as_before: Callable[[], bool],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    statics: Sequence[Static],
    leaves: Sequence[Any],
    shape: Hashable,
) -> Plan | None:
    """The plan for calls like one that was just made; None for calls that are not covered."""
    stand_ins = [copies.copy_of(leaf, program.session) if is_jax_array(leaf) else None for leaf in leaves]
    copied = [copy is not None for copy in stand_ins]
    is_queued = Array in map(type, leaves)
    wants = _wants(program, leaves, copied, is_queued)
    if wants is None:
        return None
    session, prepared, generation = program.session, program.prepared, program.generation
    leaves_of = _leaves_of(args, kwargs, statics, leaves, shape)
    watch = program.capture.watch if program.capture is not None else None
    executable, results, looks, unflatten = prepared.executable, prepared.results, program.looks, program.unflatten
    call_now = program.call_now
    count, forms, most = len(results), list(map(host_form, results)), inline_most(len(leaves))
    look_at = program.resent.look if program.resent.places else None
    taken = program.taken[0] if program.taken else ()

    def plan(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if process.current is not session or session.program_generation != generation or not is_as_before():
            return MISS
        if watch is not None:
            try:
                for check in watch.checks:
                    if not check():
                        return MISS
            except GONE:
                return MISS
        leaves: Any = args if leaves_of is None else leaves_of(args, kwargs)
        if leaves is None or len(leaves) != len(wants) or (leaves_of is None and kwargs):
            return MISS
        arguments, attachments, held = [], [], []
        with session.lock:
            if session.connection is None or session.program_generation != generation:
                return MISS
            own = session.generation
            for leaf, (kind, spec, given, dtype, is_own) in zip(leaves, wants):  # noqa: B905  (as long as each other, and quick)
                if type(leaf) is not kind:
                    return MISS
                if kind is Array:
                    if leaf._session is not session or leaf._generation != own or leaf.deleted:
                        return MISS
                    if leaf.spec is not spec and leaf.spec != spec:
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
                    if value.nbytes <= most:
                        arguments.append(value.tobytes())
                    else:
                        arguments.append(Attached(value.nbytes))
                        attachments.append(value)
            if look_at is not None:
                look_at(leaves)
            if is_queued and taken and len(set(map(id, leaves))) < len(leaves):
                return MISS
            if attachments and not is_queued:
                try:
                    arrays = call_now(arguments, attachments, leaves)
                except _NOT_RUN:
                    return MISS
            else:
                first = session.next_handle
                session.next_handle = first + count
                arrays = make_handles(session, first, results)
                if is_queued:
                    session.call_later(executable, arguments, first, attachments, generation)
                    for position in taken:
                        leaves[position].deleted = True
                    if len(looks) > 1:
                        looked_at_together([arrays[n] for n in looks])
                else:
                    run = Run([Call(executable, arguments, first)], (), [], (), tuple(map(first.__add__, looks)))
                    done, _ = session.run(run, program_generation=generation)
                    if done.failures:
                        error = program.failure(done)
                        if isinstance(error, _NOT_RUN):
                            return MISS
                        raise error
                    for n, value in zip(looks, done.values):  # noqa: B905
                        if type(value) is bytes:
                            arrays[n]._value = np.ndarray(*forms[n], value)
        return unflatten(arrays)

    return plan


_Want = tuple[Any, Spec, Any, Any, bool]
"""The type of a leaf, its spec, its dtype if it has one, that in which it travels, and whether it is an array of the
client's own jax; with `Array` for a dtype, it has a copy. Typed keys travel in no dtype of theirs."""


def _wants(program: Program, leaves: Sequence[Any], copied: Sequence[bool], is_queued: bool) -> list[_Want] | None:
    """What the leaves of another such call must be; None where such calls are not covered."""
    prepared = program.prepared
    by_value = any(type(leaves[position]) is not Array for position in prepared.donated)
    if program.order is not None or by_value or (prepared.donated and not program.taken):
        return None
    most = inline_most(len(program.looks))
    if prepared.may_raise if is_queued else any(nbytes_of(prepared.results[n]) > most for n in program.looks):
        return None
    wants: list[_Want] = []
    for leaf, spec, has_copy in zip(leaves, program.specs, copied, strict=True):
        kind = type(leaf)
        if has_copy:
            wants.append((kind, spec, Array, None, True))
            continue
        if kind is Array:
            wants.append((kind, spec, None, None, False))
            continue
        is_large = nbytes_of(spec) > inline_most(len(leaves))
        if is_large and kind is not np.ndarray:
            return None
        _, dtype = host_form(spec)
        if kind in _NUMBERS:
            wants.append((kind, spec, None, dtype, False))
        elif is_jax_array(leaf) and not getattr(leaf, "committed", True):
            wants.append((kind, spec, leaf.dtype, None if is_key(spec) else dtype, True))
        elif kind is np.ndarray or (issubclass(kind, np.generic) and kind.__module__ == "numpy"):
            wants.append((kind, spec, dtype if leaf.dtype == dtype else leaf.dtype, dtype, False))
        else:
            return None
    return wants


def _leaves_of(
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    statics: Sequence[Static],
    leaves: Sequence[Any],
    shape: Hashable,
) -> Callable[[tuple[Any, ...], dict[str, Any]], Sequence[Any] | None] | None:
    """What gives the leaves of another call, and None where its tree is another; None where they are its arguments."""
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
