"""The daemon's hot path: plain Runs, executed by one flat function.

`runs.answer` defines what a Run does. A Run is plain, and answered here, if

- the daemon does not refuse calls;
- the session has not ended, no Run of an earlier connection is active, and no dropped handle waits for one;
- the Run has only calls, drops and fetches, and no block of shared memory;
- each call's program is plain and has no strikes (`CompiledProgram.plain`: it takes and returns ordinary arrays on one
  device, and has no donation, no callbacks and no settings of its own). A program from before a restart is not known
  to be;
- each call has as many arguments as its program, each a handle or the bytes of a small array.

A plain Run has the same effects and the same reply as with `runs.answer`, which a property test checks. `runs.py` also
does the single steps of a plain Run that turn out to be special: the call with a missing or failed argument, or with
results for which the budget or the device may have no room; the failure of a call; and the fetch of an array that is
large, or whose buffer Python cannot read.
"""

from typing import Any

import numpy as np

from jitclient.wire.array_transport import HostArray, inline_limit
from jitclient.wire.messages import Run
from jitclient.wire.reply import Reply
from jitserver.daemon import runs
from jitserver.daemon.sessions.run_order import Order
from jitserver.daemon.sessions.session import DaemonSession
from jitserver.programs.exceptions import Failed, is_exhausted
from jitserver.programs.program import CompiledProgram
from jitserver.programs.recorder import labelled
from jitserver.programs.traces.ambient_reads import monotonic


def answer(
    service: runs.Service, connection: object, session: DaemonSession, order: Order, run: Run
) -> runs.Answer | None:
    """Execute a plain Run, as `runs.answer` would.

    Returns:
        The answer; None, with nothing done, if the Run is not plain, or if the client has moved to another connection.
    """
    if (
        service.refuses_calls
        or run.puts
        or run.wait
        or run.block
        or run.into
        or (session.attached > 1 and session.active.has_older())
        or session.pending_drops
        or session.ended
    ):
        return None
    engine, executables, programs = service.engine, session.executables, list[CompiledProgram]()
    for call in run.calls:
        number = call.executable
        entry = executables[number] if 0 <= number < len(executables) else ""
        if type(entry) is str:
            return None
        program = entry.program  # type: ignore[union-attr]
        forms = program.plain
        if forms is None or program.suspect or len(forms) != len(call.arguments):
            return None
        for value, (_, _, nbytes) in zip(call.arguments, forms):  # noqa: B905  (equal lengths, and faster)
            if type(value) is not int and (type(value) is not bytes or len(value) != nbytes):
                return None
        programs.append(program)
    if not order.begin(connection, run.number):
        return None
    # Read `session.arrays` each time: a checkpoint replaces it while Runs that take too long are still active.
    reply, budget, slot = Reply(run.number), session.budget.default, engine.journal.thread_state.slot
    in_flight, recorder = engine.in_flight, engine.recorder
    ran: list[tuple[CompiledProgram, float]] = []
    try:
        with engine.counters.lock:
            engine.counters.calls += len(programs)
        for call, program in zip(run.calls, programs):  # noqa: B905
            leaves, leaf, results, result = list[Any](), None, None, None  # free the arrays of the previous call
            for handle in call.drop:
                session.arrays.pop(handle, None)
                session.makers.pop(handle, None)
            run_program = program.direct or program.run
            for value, (shape, dtype, _) in zip(call.arguments, program.plain):  # type: ignore[arg-type]  # noqa: B905
                leaf = session.arrays.get(value) if type(value) is int else np.ndarray(shape, dtype, value)  # type: ignore[arg-type]
                if leaf is None or type(leaf) is Failed:
                    break
                leaves.append(leaf)
            budget.left -= program.nbytes
            if len(leaves) < len(call.arguments) or budget.left < 0 < program.nbytes:
                budget.left += program.nbytes
                runs.run_one(engine, session, call, reply, ran)
                continue
            if recorder.is_on:
                run_program = labelled(run_program, program)
            slot[:] = program.mark
            start = monotonic()
            try:
                results = run_program(*leaves)
                if in_flight is not None:
                    in_flight.note(program, results, start)
            except BaseException as error:
                if is_exhausted(error):
                    budget.left += program.nbytes
                    leaves, leaf = [], None
                    runs.run_one(engine, session, call, reply, ran)
                else:
                    runs.note_failure(engine, session, call, program, error, reply)
                continue
            finally:
                slot[0] = 0
                program.last_call = end = monotonic()
                ran.append((program, end - start if in_flight is None else max(end - start, program.device_seconds)))
            handle, number = call.results, call.executable
            for result in results:
                session.arrays[handle] = result
                session.makers[handle] = number
                handle += 1
        with engine.counters.lock:
            for program, seconds in ran:
                if seconds > program.slowest and program.calls:
                    program.slowest = seconds
                program.calls += 1
                if program.direct is None:
                    program.set_direct()
                program.call_seconds += seconds
                program.queued_seconds += program.queue_seconds
                session.call_seconds += seconds
            session.calls += len(ran)
        leaves, leaf, results, result = [], None, None, None
        for handle in run.drop:
            session.arrays.pop(handle, None)
            session.makers.pop(handle, None)
        attachments: list[HostArray] = []
        values, may_have_failed = reply.values, False
        max_inline = inline_limit(len(run.fetch))
        for handle in run.fetch:
            try:
                view = memoryview(session.arrays[handle])
            # Absent, failed, deleted, on a GPU, or of a dtype that only JAX has.
            except (KeyError, TypeError, BufferError):
                view = None
            if view is None or view.nbytes > max_inline:
                values.append(runs.fetch(engine, session, handle, attachments, len(run.fetch)))
                may_have_failed = True
            else:
                values.append(view.tobytes())
        if may_have_failed:
            reply.set_values(values)
        return reply, attachments
    finally:
        active = order.active
        active.running.pop(connection, None)
        if active.waiting:
            active.notify()
        if session.pending_drops:
            session.free_pending_drops()
