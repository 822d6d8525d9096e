"""Process liveness (pidfd), process identity (pid, boot id, start time), and the program that a process runs."""

import os
import re
import select
from pathlib import Path

import msgspec

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_PYTHON_OPTIONS_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")
_RUN_OPTIONS_WITH_VALUE = ("--package",)
_PYTHON = re.compile(r"python[\d.]*")
_KERNEL = ["-m", "ipykernel_launcher"]
_NOTEBOOK = b"JPY_SESSION_NAME="


class Process(msgspec.Struct, array_like=True, frozen=True):
    """A process of this machine.

    Attributes:
        pid: its process id.
        born: the boot id and the start time, which distinguish the process from others with the same id. Empty if
            unknown.
    """

    pid: int
    born: str


class ProcessWatch:
    """A watch on one process, which reports whether the process has exited."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._pidfd: int | None = None
        self._closed = False
        self._id_was_reused = False
        self.has_exited()  # opens the pidfd now

    @classmethod
    def restored(cls, process: Process) -> "ProcessWatch":
        """Return a watch on a process that an earlier daemon recorded.

        The process counts as exited if its id now belongs to a different process.
        """
        watch = cls(process.pid)
        watch._id_was_reused = process_with_id(process.pid) != process
        return watch

    def has_exited(self) -> bool:
        """Return whether the process has exited, as far as can be determined (False if no pidfd is available)."""
        if self._id_was_reused:
            return True
        if self._pidfd is None and not self._closed:
            try:
                # No pidfd if no file descriptors are free: the next call tries again.
                self._pidfd = _pidfd_of(self.pid)
            except ProcessLookupError:
                return True
        if self._pidfd is None:
            return False
        poller = select.poll()
        poller.register(self._pidfd, select.POLLIN)
        # Test for POLLIN only: if user code closed the file descriptor, poll reports POLLNVAL, which proves nothing.
        return any(event & select.POLLIN for _, event in poller.poll(0))

    def close(self) -> None:
        """Stop watching and close the file descriptor."""
        self._closed = True
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None


def has_exited(pid: int) -> bool:
    """Return whether a process has exited, as far as can be determined."""
    watch = ProcessWatch(pid)
    try:
        return watch.has_exited()
    finally:
        watch.close()


def process_with_id(pid: int) -> Process:
    """Return the process that has this id now; `born` is empty if /proc cannot be read."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return Process(pid, f"{_BOOT.read_text().strip()} {fields[19]}")  # field starttime of proc_pid_stat(5)
    except (OSError, IndexError):
        return Process(pid, "")


def program_of(pid: int) -> str:
    """Return the program of a process in one line, as its user typed it after the interpreter.

    The text is empty if the process has exited.

    Example:
        `train.py --lr 0.1` for `/usr/bin/python3 -u -m jitserver run --report train.py --lr 0.1`.
    """
    words = _without_launcher(command_line(pid))
    return _notebook_of(pid) if words[: len(_KERNEL)] == _KERNEL else " ".join(" ".join(words).split())


def _notebook_of(pid: int) -> str:
    """Return the path of a kernel's notebook, which Jupyter's server sets in a variable, or "notebook"."""
    found = [value.removeprefix(_NOTEBOOK) for value in _read(pid, "environ") if value.startswith(_NOTEBOOK)]
    return os.fsdecode(next(iter(found), b"")) or "notebook"


def _without_launcher(words: list[str]) -> list[str]:
    """Return a command line without Python, its options, and the commands of ours that run a program."""
    if len(words) == 1:
        # A process that set its own title.
        words = words[0].split(" ")
    name = Path(words[0]).name if words else ""
    if name != "jitserver" and not name.startswith("python"):
        return words
    left = words if name == "jitserver" else _after_options(words[1:], _PYTHON_OPTIONS_WITH_VALUE)
    if Path(left[0] if left else "").name == "jitserver":
        left = ["-m", "jitserver", *left[1:]]
    for launcher in (["-m", "jitserver", "run"], ["-m", "jitclient"]):
        if left[: len(launcher)] == launcher:
            left = _after_options(left[len(launcher) :], _RUN_OPTIONS_WITH_VALUE)
    return left or words


def _after_options(words: list[str], with_value: tuple[str, ...]) -> list[str]:
    """Return the words from the program on, which is a file, `-m MODULE` or `-c CODE`."""
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] not in ("-m", "-c", "-"):
        at += 2 if words[at] in with_value else 1
    return words[at:]


def command_line(pid: int) -> list[str]:
    """Return the arguments of a process's command line; empty if the process has exited or this is not Linux."""
    return [word.decode(errors="replace") for word in _read(pid, "cmdline")]


def _read(pid: int, name: str) -> list[bytes]:
    """Return the strings in a file of a process in /proc; none if the process has exited or this is not Linux."""
    try:
        return [value for value in Path(f"/proc/{pid}/{name}").read_bytes().split(b"\0") if value]
    except OSError:
        return []


def _pidfd_of(pid: int) -> int | None:
    """Return a pidfd, which becomes readable when the process exits; None if no pidfd can be opened.

    Raises:
        ProcessLookupError: the process has exited.
    """
    if not pid or not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except OSError:
        return None
