"""Process of the `jitserver run` command: hands the run to a helper and forwards signals, or runs the program itself.

The process starts quickly: none of the modules that it imports at the top is expensive.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from jitclient.api.console_scripts import resolved
from jitclient.core.notices import print_notice
from jitclient.core.settings import report_form, settings
from jitclient.errors import DaemonError, SettingsError
from jitserver.run import fd_passing, helper_address, process_facts
from jitserver.run.relay import Relay
from jitserver.run.request import GO, Command, Request, python_options

_ANSWER_SECONDS = 10.0
_PACKAGE = "--package"
_REPORT = "--report"
_FRESH = "--fresh"
_VERBOSE = ("-v", "--verbose")
OPTIONS = ("--no-jit", *_VERBOSE, _FRESH, _REPORT, _PACKAGE)
"""Options of the command."""
FRESH_REASON = f"{_FRESH}-reason="
"""Option of a run that starts again in a fresh process, which says why."""
FILES = "--files="
"""Option of `jitserver watch`: the file in which the run notes the files that it executes."""


def parsed(words: Sequence[str]) -> Command | None:
    """Parse the words of a command line; return None if they ask for help, or are invalid.

    Raises:
        SettingsError: the form of the report, or a variable of the environment, is invalid.
    """
    given, packages = set(), []
    left, fresh, files, report = list(words), "", "", settings().report
    while left and (left[0] in OPTIONS or left[0].startswith((FRESH_REASON, FILES, f"{_REPORT}="))):
        option = left.pop(0)
        if option.startswith(FILES):
            files = option.removeprefix(FILES)
        elif option.startswith(_REPORT):
            report = _checked(option.removeprefix(_REPORT).removeprefix("=") or "text")
        elif option.startswith(_FRESH):
            fresh = option.removeprefix(FRESH_REASON) if option.startswith(FRESH_REASON) else "--fresh was given"
        elif option != _PACKAGE:
            given.add(option)
        elif left:
            packages.append(left.pop(0))
    is_module = left[:1] == ["-m"]
    if is_module:
        left.pop(0)
    if not left or (left[0].startswith("-") and not is_module):
        return None
    name, *arguments = left
    name = name if is_module else resolved(name)
    is_verbose = not given.isdisjoint(_VERBOSE)
    report = report or ("lines" if is_verbose else "")
    return Command(
        name, is_module, arguments, "--no-jit" not in given, report, is_verbose, tuple(packages), fresh, files
    )


def _checked(form: str) -> str:
    try:
        return report_form(form)
    except ValueError as error:
        raise SettingsError(f"{_REPORT}={error}") from None


def run(command: Command) -> None:
    """Run a program as its own process would, and exit as the program does. Returns only for a prompt (`python -i`)."""
    reason = command.fresh or _run_in_helper(command)
    if command.verbose:
        print_notice(f"the program runs in a fresh process: {reason}")
    from jitserver.run import user_program

    if not sys.flags.safe_path:
        sys.path.pop(0)
    user_program.run(command, sys.orig_argv[0], why_fresh=reason)


def _run_in_helper(command: Command) -> str:
    """Hand the run to a helper and exit as the run does, or return why the program must run in this process."""
    if sys.platform != "linux":
        return "helpers need Linux"
    if sys.flags.verbose or "importtime" in sys._xoptions or os.environ.get("PYTHONPROFILEIMPORTTIME"):
        return "an option of Python reports each import"
    if sys.flags.inspect:
        return "python -i was given"
    try:
        with contextlib.closing(Relay()) as relay:
            return _request_run(command, relay)
    except (OSError, SettingsError) as error:
        return str(error)


def _request_run(command: Command, relay: Relay) -> str:
    terminal = os.isatty(1)
    address = helper_address.of_key(process_facts.key(process_facts.facts(terminal=terminal)))
    request = Request.of_this_process(command, relay.has_terminal)
    if not {0, 1, 2} <= set(request.fds):
        return "standard input, output or error is closed"
    if len(request.fds) > fd_passing.MAX_FDS:
        return "the command was started with too many open files"
    try:
        sock = helper_address.connect(address)
    except DaemonError:
        helper_address.start_at_exit(address, python_options(), terminal)
        return "no helper is ready for this command. A helper is started for the next one."
    with sock, relay.signals():
        try:
            sock.settimeout(_ANSWER_SECONDS)
            fd_passing.send(sock, request.plain(), relay.fds_to_send(request.fds))
            (refusal,), _ = fd_passing.receive(sock)
        except TimeoutError:
            helper_address.kill(sock)
            return f"the helper did not answer within {_ANSWER_SECONDS:.0f} s and was killed"
        except (OSError, EOFError, TypeError, ValueError) as error:
            # Another version of the helper may send any values, hence TypeError and ValueError.
            return f"the helper does not answer ({error})"
        if not refusal:
            sock.settimeout(None)
            fd_passing.send(sock, GO)
            exit_as(relay.wait_for_exit(sock, request.fds))
        return str(refusal)


def exit_as(status: int) -> NoReturn:
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
