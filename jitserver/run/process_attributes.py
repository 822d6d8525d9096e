"""Attributes of a process that outlive `exec`, and that code in it may have changed."""

import os
import resource


class ProcessAttributes:
    """The processors, the limits and the umask of this moment.

    Args:
        umask: the umask, which is not that of this process where a run has another.
    """

    def __init__(self, umask: int) -> None:
        self._umask = umask
        self._processors = os.sched_getaffinity(0)
        self._limits = {number: resource.getrlimit(number) for number in _kinds_of_limits()}

    def restore(self) -> None:
        """Restore them in this process.

        Raises:
            OSError, ValueError: a limit was lowered that only root may raise.
        """
        os.sched_setaffinity(0, self._processors)
        for number, limit in self._limits.items():
            if resource.getrlimit(number) != limit:
                resource.setrlimit(number, limit)
        os.umask(self._umask)


def _kinds_of_limits() -> list[int]:
    return [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]
