"""A daemon whose process has no descriptors left: it stays up, and serves again once there are some."""

import resource
from typing import Any

from jitclient.wire.address import Address

DESCRIPTORS = 64


def test_the_limit_of_descriptors_is_survived(serve: Any, client_of: Any, until: Any, works: Any) -> None:
    with serve() as daemon:
        with client_of(daemon.address):
            works()
        before = daemon.holdings()
        resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
        crowd = [Address.parse(daemon.address).connect() for _ in range(2 * DESCRIPTORS)]

        def is_full() -> bool:
            return len(daemon.descriptors()) >= DESCRIPTORS

        until(is_full, "the descriptors to run out")
        assert daemon.process.poll() is None
        for sock in crowd:
            sock.close()
        with client_of(daemon.address):
            works()
        daemon.settles(before, until)
