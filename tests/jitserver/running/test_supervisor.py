"""The process between a helper and a run passes on what the run is to have, when the run is ready for it."""

from typing import Any

import pytest

SUPERVISED = """
    import json, os, signal, socket
    from jitserver.running import handover, supervisor

    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        ours.close()
        supervisor.supervise(theirs, None, [], lambda: os.kill(os.getpid(), signal.SIGINT))
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
        except KeyboardInterrupt:
            os._exit(7)
        os._exit(0)
    theirs.close()
    (kind, status), _ = handover.receive(ours)
    print(json.dumps([kind, os.waitstatus_to_exitcode(status)]))
"""


@pytest.mark.core
def test_a_signal_that_comes_before_the_program_begins_is_for_the_program(run_script: Any) -> None:
    assert run_script(SUPERVISED) == ["ended", 7]
