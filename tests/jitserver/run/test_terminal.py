"""A run on a terminal: it has one of its own, joined to the user's."""

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from typing import Any

import pytest

from ...prepared import prepared
from .conftest import install, learn

SHELL = """
import os, signal, sys
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
job = os.fork()
if job == 0:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
while True:
    _, status = os.waitpid(job, os.WUNTRACED)
    os.tcsetpgrp(0, os.getpgrp())
    if not os.WIFSTOPPED(status):
        break
    print("stopped by", os.WSTOPSIG(status), flush=True)
    sys.stdin.readline()
    os.tcsetpgrp(0, job)
    os.killpg(job, signal.SIGCONT)
print("ended with", os.waitstatus_to_exitcode(status), flush=True)
"""
"""A shell with one job."""


class User:
    """Who sits at a terminal with a shell, in which a command runs."""

    def __init__(self, environment: Any, words: list[str]) -> None:
        self.keyboard, self.screen = os.openpty()
        self.size(24, 80)
        self.shown = ""
        self.shell = subprocess.Popen(
            prepared("os.login_tty(0)", sys.executable, "-c", SHELL, *words),
            stdin=self.screen,
            stdout=self.screen,
            stderr=self.screen,
            env=environment.variables,
            cwd=environment.folder,
        )

    def size(self, rows: int, columns: int) -> None:
        termios.tcsetwinsize(self.keyboard, (rows, columns))

    def types(self, keys: str) -> None:
        os.write(self.keyboard, keys.encode())

    def sees(self, text: str, seconds: float = 60.0) -> str:
        """Waits until the screen shows a text; returns what it showed before."""
        deadline = time.monotonic() + seconds
        while text not in self.shown:
            left = deadline - time.monotonic()
            assert left > 0, f"{text!r} is not in {self.shown!r}"
            if select.select([self.keyboard], [], [], left)[0]:
                self.shown += os.read(self.keyboard, 65536).decode()
        before, _, self.shown = self.shown.partition(text)
        return before

    def close(self) -> None:
        self.shell.kill()
        self.shell.wait()
        os.close(self.keyboard)
        os.close(self.screen)


@pytest.fixture(params=["preloaded", "python"])
def user(request: pytest.FixtureRequest, warm: Any) -> Iterator[Any]:
    """Starts a script on a terminal, in a helper's child and, to compare, with python."""
    if request.param == "preloaded":
        warm.warm_terminal()
    users = []

    def start(source: str) -> User:
        script = warm.script(source)
        words = warm.arguments("--verbose", script)[1:] if request.param == "preloaded" else [script]
        users.append(User(warm, words))
        return users[-1]

    yield start
    for one in users:
        one.close()


@pytest.mark.slow
def test_a_package_that_asks_at_its_import_finds_the_terminal(cold: Any, site: Any, until: Any) -> None:
    install(site, "asks", "import sys; VALUE = sys.stdout.isatty()")
    install(site, "asks_for_errors", "import sys; VALUE = sys.stderr.isatty()")
    of_size = "import os\ntry: VALUE = tuple(os.get_terminal_size())\nexcept OSError: VALUE = None"
    install(site, "asks_for_size", of_size)
    # JAX asks at its import, and has colours accordingly.
    learn(cold, until, "jax", "asks", "asks_for_errors", "asks_for_size")
    cold.warm_terminal()

    def shown(script: str) -> str:
        at = User(cold, cold.arguments("--verbose", script)[1:])
        try:
            return at.sees("ended with 0")
        finally:
            at.close()

    script = cold.script("import asks, jax._src.pretty_printer as of_jax; print(asks.VALUE, of_jax.CAN_USE_COLOR)")
    without = cold.run("--verbose", script)
    assert (without.stdout, without.stderr) == ("False False\n", "")
    assert shown(script) == "True True\r\n"
    script = cold.script("import asks_for_errors; print(asks_for_errors.VALUE)")
    assert shown(script) == "True\r\n"
    outer, inner = os.openpty()
    done = cold.run("--verbose", script, stdout=inner)
    os.close(inner)
    assert os.read(outer, 1000).startswith(b"False")
    os.close(outer)
    assert "imports ask whether file 2 is a terminal, and the answer is no now" in done.stderr
    size = shown(cold.script("import asks_for_size; print(asks_for_size.VALUE)"))
    assert size == "(80, 24)\r\n"


def test_it_is_a_terminal_of_the_same_size(user: Any) -> None:
    at = user(
        """
        import os, sys
        print([os.isatty(n) for n in range(3)], tuple(os.get_terminal_size()))
        own = os.open("/dev/tty", os.O_RDWR)
        print(os.tcgetpgrp(0) == os.getpgrp(), os.ttyname(0) == os.ttyname(1), os.isatty(own))
        """
    )
    before = at.sees("ended with 0")
    assert before == "[True, True, True] (80, 24)\r\nTrue True True\r\n"


def test_what_is_typed_is_read_and_echoed(user: Any) -> None:
    at = user("import sys; print('read', input('name? ')); print(repr(sys.stdin.read()))")
    assert at.sees("name? ") == ""
    at.types("Ada\n")
    assert at.sees("read Ada\r\n") == "Ada\r\n"
    at.types("more\n\x04")
    assert at.sees("ended with 0") == "more\r\n'more\\n'\r\n"


def test_a_password_is_not_echoed(user: Any) -> None:
    at = user("import getpass; print(len(getpass.getpass()))")
    at.sees("Password: ")
    at.types("secret\n")
    assert at.sees("ended with 0") == "\r\n6\r\n"


def test_ctrl_c_interrupts(user: Any) -> None:
    # in short sleeps: Python itself misses a signal that comes just before it begins to sleep
    at = user("import time\nprint('ready')\nwhile True:\n    time.sleep(0.1)")
    at.sees("ready\r\n")
    at.types("\x03")
    before = re.sub(r"\x1b\[[0-9;]*m", "", at.sees(f"ended with {-signal.SIGINT}"))  # colours, since Python 3.13
    assert before.startswith("^CTraceback")
    assert before.endswith("KeyboardInterrupt\r\n")


def test_ctrl_z_stops_and_fg_continues(user: Any) -> None:
    at = user("print('ready'); print('read', input())")
    at.sees("ready")
    at.types("\x1a")
    assert "^Z" in at.sees(f"stopped by {signal.SIGTSTP.value}\r\n")
    at.types("\n")
    at.types("again\n")
    at.sees("read again\r\n")
    at.sees("ended with 0")


def test_a_new_size_is_told(user: Any) -> None:
    at = user(
        """
        import os, signal, time
        told = []
        signal.signal(signal.SIGWINCH, lambda *_: told.append(os.get_terminal_size()))
        print('ready')
        while not told:  # a signal just before `input` waits for its end
            time.sleep(0.01)
        print(*told[0])
        """
    )
    at.sees("ready")
    at.size(30, 100)
    at.sees("100 30\r\n")
    at.sees("ended with 0")


def test_all_that_is_printed_last_is_shown(user: Any) -> None:
    at = user("import sys; sys.stdout.write('x' * 300_000 + 'end')")
    assert at.sees("ended with 0") == "x" * 300_000 + "end"


def test_the_terminal_stays_as_the_program_leaves_it(user: Any) -> None:
    source = """
        import termios
        print("ready")
        input()
        new = termios.tcgetattr(0)
        new[3] &= ~termios.{flag}
        termios.tcsetattr(0, termios.TCSANOW, new)
    """
    for flag in ("ECHO", "TOSTOP"):
        at = user(source.format(flag=flag))
        at.sees("ready")
        before = termios.tcgetattr(at.screen)[3]
        at.types("\n")
        at.sees("ended with 0")
        after = termios.tcgetattr(at.screen)[3]
        assert bool(after & termios.ECHO) == (flag != "ECHO")
        assert after & termios.ICANON
        assert after & termios.ISIG, before


def test_a_debugger_works(user: Any) -> None:
    at = user("x = 42\nbreakpoint()\nprint('after', x)")
    at.sees("(Pdb) ")
    at.types("p x\n")
    at.sees("42\r\n(Pdb) ")
    at.types("x = 43\n")
    at.sees("(Pdb) ")
    at.types("c\n")
    at.sees("after 43\r\n")
    at.sees("ended with 0")


def test_it_ends_with_the_terminal(user: Any, warm: Any, until: Any) -> None:
    at = user("import os, time; print('pid', os.getpid(), '.'); time.sleep(600)")
    at.sees("pid ")
    pid = int(at.sees("."))
    at.shell.kill()
    os.close(at.keyboard)
    os.close(at.screen)
    try:
        until(lambda: not warm.is_alive(pid), "its end")
    finally:
        at.keyboard, at.screen = os.openpty()


@pytest.mark.parametrize("redirected", ["stdin", "stdout", "stderr"])
def test_with_one_stream_elsewhere_the_others_are_the_terminal(warm: Any, redirected: str) -> None:
    warm.warm_terminal()
    script = warm.script("import os; os.write(2, str([os.isatty(n) for n in range(3)]).encode()); print('done')")
    outer, inner = os.openpty()
    streams = {"stdin": inner, "stdout": inner, "stderr": inner, redirected: subprocess.PIPE}
    process = warm.start("--verbose", script, **streams)
    done = warm.end(process)
    os.close(inner)
    shown = done.stderr or ""
    with contextlib.suppress(OSError):  # at its end
        while True:
            shown += os.read(outer, 1000).decode()
    assert str([name != redirected for name in ("stdin", "stdout", "stderr")]) in shown
    assert "done" in shown + (done.stdout or "")
    assert "fresh process" not in shown
    os.close(outer)
