"""The command stays for its run, whatever it lacks itself."""

from typing import Any

import pytest

WITHOUT_DESCRIPTORS = """
    import os, socket
    from jitserver.run import fd_passing, relay

    ours, theirs = socket.socketpair()
    made = relay.Relay()
    fd_passing.send(theirs, (relay.EXITED, 5))
    spent = []
    try:
        while True:
            spent.append(os.dup(0))
    except OSError:
        pass
    status = made.wait_for_exit(ours, spent[:1])
    for number in spent:
        os.close(number)
    print(status)
"""


@pytest.mark.core
def test_a_run_that_has_begun_needs_no_descriptor_of_its_command(run_script: Any) -> None:
    assert run_script(WITHOUT_DESCRIPTORS) == 5
