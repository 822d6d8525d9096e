"""Process of the `jitserver run` command: hands the run to a helper and forwards signals, or runs the program itself.

The process starts quickly: none of the modules that it imports at the top is expensive.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from jitclient.core.notices import print_notice
from jitclient.errors import DaemonError, SettingsError
from jitserver.run import fd_passing, fingerprint, place
from jitserver.run.relay import Relay
from jitserver.run.request import GO, Command, Request, python_options

_ANSWER_SECONDS = 10.0
_PACKAGE = "--package"


def parsed(words: Sequence[str]) -> Command | None:
    """Parse the words of a command line; return None if they ask for help, or are invalid."""
    options = {"--no-jit": False, "--report": False, "--verbose": False}
    packages = []
    left = list(words)
    while left and left[0] in (*options, _PACKAGE):
        option = left.pop(0)
        if option in options:
            options[option] = True
        elif left:
            packages.append(left.pop(0))
    is_module = left[:1] == ["-m"]
    if is_module:
        left.pop(0)
    if not left or (left[0].startswith("-") and not is_module):
        return None
    name, *arguments = left
    jit, report, verbose = not options["--no-jit"], options["--report"], options["--verbose"]
    return Command(name, is_module, arguments, jit, report, verbose, tuple(packages))


def run(command: Command) -> None:
    """Run a program as its own process would, and exit as the program does. Returns only for a prompt (`python -i`)."""
    reason = _handed_over(command)
    if command.verbose:
        print_notice(f"runs in a process of its own: {reason}")
    from jitserver.run import program

    if not sys.flags.safe_path:
        sys.path.pop(0)
    program.run(command, sys.orig_argv[0])


def _handed_over(command: Command) -> str:
    """Hand the run to a helper and exit as the run does, or return why the program must run in this process."""
    if sys.platform != "linux":
        return "helpers need Linux"
    if sys.flags.verbose or "importtime" in sys._xoptions or os.environ.get("PYTHONPROFILEIMPORTTIME"):
        return "Python is to report each import"
    if sys.flags.inspect:
        return "Python is to go on with a prompt"
    try:
        with contextlib.closing(Relay()) as relay:
            return _offered(command, relay)
    except (OSError, SettingsError) as error:
        return str(error)


def _offered(command: Command, relay: Relay) -> str:
    place_of_helper = place.of(fingerprint.key(fingerprint.facts()))
    request = Request.of_this_process(command, relay.has_terminal)
    if not {0, 1, 2} <= set(request.descriptors):
        return "standard input, output or error is closed"
    if len(request.descriptors) > fd_passing.MOST_DESCRIPTORS:
        return "it was started with too many open files"
    try:
        sock = place.connect(place_of_helper)
    except DaemonError:
        place.start_at_the_end(place_of_helper, python_options())
        return "no process is ready for such a command; one is started for the next"
    with sock, relay.signals():
        try:
            sock.settimeout(_ANSWER_SECONDS)
            fd_passing.send(sock, request.plain(), relay.descriptors(request.descriptors))
            (refusal,), _ = fd_passing.receive(sock)
        except TimeoutError:
            place.end(sock)
            return f"the process that should run it has not answered for {_ANSWER_SECONDS:.0f} s, and was ended"
        except (OSError, EOFError, TypeError, ValueError) as error:
            # Another version of the helper may send any values, hence TypeError and ValueError.
            return f"the process that should run it does not answer: {error}"
        if not refusal:
            sock.settimeout(None)
            fd_passing.send(sock, GO)
            end_as(relay.until_the_end(sock, request.descriptors))
        return str(refusal)


def end_as(status: int) -> NoReturn:
    """Exit in the same way as a process with this wait status."""
    if os.WIFSIGNALED(status):
        import resource

        number = os.WTERMSIG(status)
        # Dump no core here, because the run has dumped its own.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
