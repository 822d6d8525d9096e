"""Which processes live, and what they are: a descriptor tells at once, and a name that no other process ever has."""

import os
import select
from pathlib import Path

import msgspec

_BOOT = Path("/proc/sys/kernel/random/boot_id")


class Process(msgspec.Struct, array_like=True, frozen=True):
    """A process of this machine. `born` distinguishes it from others with the same id, if it is not empty."""

    pid: int
    born: str


class Watch:
    """Tells when a process has ended."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._descriptor: int | None = None
        self._closed = False
        self._is_another = False
        self.is_over()  # opens the descriptor now

    @classmethod
    def again(cls, process: Process) -> "Watch":
        """Watches a process that an earlier daemon saw."""
        watch = cls(process.pid)
        watch._is_another = named(process.pid) != process
        return watch

    def is_over(self) -> bool:
        """Whether it has ended, as far as that can be known."""
        if self._is_another:
            return True
        if self._descriptor is None and not self._closed:
            try:
                self._descriptor = _pidfd_of(self.pid)  # retried later if there are no descriptors now
            except ProcessLookupError:
                return True
        if self._descriptor is None:
            return False
        poller = select.poll()
        poller.register(self._descriptor, select.POLLIN)
        return any(event & select.POLLIN for _, event in poller.poll(0))  # not if user code closed the descriptor

    def close(self) -> None:
        """Stops watching."""
        self._closed = True
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def named(pid: int) -> Process:
    """The process that has this id now."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return Process(pid, f"{_BOOT.read_text().strip()} {fields[19]}")  # starttime, proc_pid_stat(5)
    except (OSError, IndexError):
        return Process(pid, "")


def command_line(pid: int) -> list[str]:
    """The words of a process's command line; none if the process has ended or this is not Linux."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []
    return [word for word in words if word]


def _pidfd_of(pid: int) -> int | None:
    """A descriptor that becomes readable when a process ends; None if there can be none. Raises if it has ended."""
    if not pid or not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except OSError:
        return None
