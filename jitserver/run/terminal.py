"""Terminal of a run: a pseudoterminal, whose other end the command connects to the user's terminal."""

import contextlib
import os
import select
import termios
import tty
from typing import Self

_CHUNK = 65536
# Silence after the exit of a run that shows that all of its output has arrived.
_QUIET_MS = 50


class Terminal:
    """New terminal with the size and settings of this process's terminal.

    Attributes:
        inner: file descriptor of the run's end.
    """

    def __init__(self) -> None:
        self._settings = termios.tcgetattr(0)
        self._outer, self.inner = os.openpty()
        termios.tcsetattr(self.inner, termios.TCSANOW, self._settings)
        self.copy_size()
        os.set_blocking(self._outer, False)
        self._typed = b""
        self._is_forwarding = False
        self._is_over = False

    @classmethod
    def of_this_process(cls) -> Self | None:
        """Return a terminal if this process runs in the foreground on one, with all standard streams; else None."""
        try:
            same = len({(os.fstat(number).st_dev, os.fstat(number).st_ino) for number in range(3)}) == 1
            if same and os.isatty(0) and os.tcgetpgrp(0) == os.getpgrp():
                return cls()
        except OSError:
            # A file descriptor is closed, or belongs to another session's terminal.
            pass
        return None

    def copy_size(self) -> None:
        """Give the run's end the size of the user's terminal."""
        with contextlib.suppress(termios.error):
            termios.tcsetwinsize(self._outer, termios.tcgetwinsize(0))

    def start_forwarding(self) -> None:
        """Start forwarding if this process is in the foreground: the run's end turns keys into signals."""
        with contextlib.suppress(OSError, termios.error):
            if not self._is_forwarding and os.tcgetpgrp(0) == os.getpgrp():
                self._settings = termios.tcgetattr(0)
                tty.setraw(0, termios.TCSADRAIN)
                self._is_forwarding = True
                self.copy_size()

    def stop_forwarding(self) -> None:
        """Stop forwarding and restore the user's terminal settings."""
        if self._is_forwarding:
            with contextlib.suppress(OSError, termios.error):
                termios.tcsetattr(0, termios.TCSADRAIN, self._settings)
            self._is_forwarding = False

    def close(self) -> None:
        """Close both ends of the terminal."""
        os.close(self._outer)
        os.close(self.inner)

    def poll(self, poller: select.poll) -> list[tuple[int, int]]:
        """Forward keys and output until other files are ready, or a signal arrived; return the ready files."""
        # The run holds this end now. When all its holders have closed it, there is no more output.
        if self.inner >= 0:
            os.close(self.inner)
            self.inner = -1
        while True:
            own = {0: select.POLLIN} if self._is_forwarding and not self._typed else dict[int, int]()
            if not self._is_over:
                own[self._outer] = select.POLLIN | (select.POLLOUT if self._typed else 0)
            for number, events in own.items():
                poller.register(number, events)
            found = poller.poll()
            for number in own:
                poller.unregister(number)
            for number, events in found:
                if number not in own:
                    continue
                if number == 0:
                    self._read_keys()
                elif events & select.POLLOUT:
                    self._write_keys()
                else:
                    self._is_over = not self._forward_output()
            others = [one for one in found if one[0] not in own]
            if others:
                return others

    def drain(self) -> None:
        """Forward the last output of the run, and leave the user's terminal with the settings that the run left."""
        poller = select.poll()
        poller.register(self._outer, select.POLLIN)
        while poller.poll(_QUIET_MS) and self._forward_output():
            pass
        with contextlib.suppress(termios.error):
            if self._is_forwarding:
                self._settings = termios.tcgetattr(self._outer)

    def _read_keys(self) -> None:
        try:
            self._typed += os.read(0, _CHUNK)
        except OSError:  # the terminal hung up
            self._is_forwarding = False
        else:
            self._write_keys()

    def _write_keys(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._typed = self._typed[os.write(self._outer, self._typed) :]

    def _forward_output(self) -> bool:
        """Forward output; return whether there can be more."""
        try:
            output = os.read(self._outer, _CHUNK)
        except BlockingIOError:
            return True
        except OSError:  # no process has the other end
            return False
        while output:
            output = output[os.write(1, output) :]
        return True
