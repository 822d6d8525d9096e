"""The process between a helper and a run passes on what the run is to have, when the run is ready for it."""

from typing import Any

import pytest

SUPERVISED = """
    import errno, json, os, signal, socket
    from jitserver.run import fd_passing, supervisor
    from jitserver.run.request import GO

    def prepare():
        {prepare}

    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        ours.close()
        supervisor.supervise(theirs, None, [], prepare)
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
        except KeyboardInterrupt:
            os._exit(7)
        os._exit(0)
    theirs.close()
    (problem,), _ = fd_passing.receive(ours)
    if problem:
        print(json.dumps(problem))
    else:
        fd_passing.send(ours, GO)
        (kind, status), _ = fd_passing.receive(ours)
        print(json.dumps([kind, os.waitstatus_to_exitcode(status)]))
"""


@pytest.mark.core
def test_a_signal_that_comes_before_the_program_begins_is_for_the_program(run_script: Any) -> None:
    assert run_script(SUPERVISED.format(prepare="os.kill(os.getpid(), signal.SIGINT)")) == ["exited", 7]


@pytest.mark.slow
def test_a_run_that_cannot_be_prepared_does_not_begin(run_script: Any) -> None:
    said = run_script(SUPERVISED.format(prepare="raise NotADirectoryError(errno.ENOTDIR, 'gone')"))
    assert said == "the run's process cannot be prepared: Not a directory"
