"""Networks between a client and a daemon: loopback, and two namespaces with a cable between them.

The commands that enter namespaces go before that of a process; who is root in a user namespace may lay cables there.
"""

import subprocess
from collections.abc import Sequence

OWN_NAMESPACE = ("unshare", "--user", "--map-root-user", "--net")
_BESIDE = ("unshare", "--net")
_RATE = ("tbf", "rate", "300mbit", "burst", "64kb", "latency", "20ms")  # drops what comes faster


def why_none() -> str:
    """Why there can be no namespaces with a cable here; empty if there can."""
    try:
        _run(*OWN_NAMESPACE, "ip", "link", "add", "near", "type", "veth", "peer", "name", "far")
    except (OSError, subprocess.CalledProcessError) as error:
        return f"no network namespaces can be made here: {error} {getattr(error, 'stderr', '')}".strip()
    return ""


class Loopback:
    """Client and daemon beside each other."""

    before_daemon: Sequence[str] = ()
    can_be_slow = False
    listens = host = "127.0.0.1"

    def connect(self, daemon: int) -> None:
        """Nothing is to be done."""


class Cable(Loopback):
    """The daemon in a namespace of its own, beside that of this process."""

    before_daemon = _BESIDE
    can_be_slow = True
    listens = "0.0.0.0"  # of that namespace, before there is a cable
    host = "10.9.8.2"

    def connect(self, daemon: int) -> None:
        """Lays the cable to the namespace of that process."""
        self._far = ("nsenter", f"--net=/proc/{daemon}/ns/net")
        _run("ip", "link", "add", "near", "type", "veth", "peer", "name", "far", "netns", str(daemon))
        _run("ip", "address", "add", "10.9.8.1/24", "dev", "near")
        _run("ip", "link", "set", "near", "up")
        _run(*self._far, "ip", "address", "add", f"{self.host}/24", "dev", "far")
        _run(*self._far, "ip", "link", "set", "far", "up")

    def slow_down(self) -> str:
        """Makes it slow and lossy; returns why it cannot be, or nothing."""
        try:
            _run("tc", "qdisc", "add", "dev", "near", "root", *_RATE)
            _run(*self._far, "tc", "qdisc", "add", "dev", "far", "root", *_RATE)
        except (OSError, subprocess.CalledProcessError) as error:
            return f"no slow link can be made here: {error} {getattr(error, 'stderr', '')}".strip()
        return ""


NETWORKS = {"loopback": Loopback, "namespaces": Cable}


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=30)
