"""Command `python -m jitclient`: its options, and the program that it runs."""

import argparse
from collections.abc import Sequence
from typing import NoReturn

import jitclient
from jitclient.api import program_end
from jitclient.api.console_scripts import resolved
from jitclient.api.run_as_main import run_module, run_script
from jitclient.core.events import Started
from jitclient.core.settings import report_form
from jitclient.errors import SettingsError


def _form(value: str) -> str:
    try:
        return report_form(value)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Report the error in one line, without the usage."""
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        "python -m jitclient",
        usage="%(prog)s [--no-jit] [--package NAME ...] [--report[=FORM]] (script | -m module) [argument ...]",
        description="Run a program after jitclient.install(): its jitted functions run on the daemon.",
        allow_abbrev=False,
    )
    parser.add_argument("--no-jit", action="store_true", help="do not replace jax.jit")
    parser.add_argument(
        "--package", action="append", default=[], metavar="NAME", help="also route the jits of this installed package"
    )
    parser.add_argument(
        "--report",
        metavar="[=FORM]",
        type=_form,
        help="at exit, print which programs were used, and what ran in this process; with =json, as a line of JSON; "
        "with =FILE.html, write a page that draws the run; with =FILE.json, a trace for Perfetto",
    )
    parser.add_argument("-m", dest="module", nargs=argparse.REMAINDER, help="run a module, as python -m does")
    parser.add_argument(
        "script",
        nargs=argparse.REMAINDER,
        help="a script, a directory or zip file with __main__.py, or a console script of this environment, followed by "
        "its arguments",
    )
    return parser


def _with_forms(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with `--report` as `--report=text`: argparse would take the program for its value."""
    words, is_value = list(arguments), False
    for number, word in enumerate(words):
        if word == "--report" and not is_value:
            words[number] = "--report=text"
        if word.startswith("-m") or not (word.startswith("-") or is_value):
            break
        is_value = word == "--package" and not is_value
    return words


def main(arguments: Sequence[str]) -> int:
    """Run the program that the arguments name.

    Returns:
        The exit status.

    Raises:
        SystemExit: the program raised it, or the arguments are invalid.
    """
    parser = _parser()
    options = parser.parse_args(_with_forms(arguments))
    named, run = (options.script, run_script) if options.module is None else (options.module, run_module)
    if not named:
        parser.error("no program given")
    name = named[0] if options.module is not None else resolved(named[0])
    # Register first so that it runs last: exit handlers run in reverse order.
    try:
        started = Started(name if options.module is None else f"-m {name}", options.package)
        program_end.begin(started, options.report or "")
    except SettingsError as error:
        parser.error(str(error))
    if not options.no_jit:
        jitclient.install(options.package)
    return run(name, named[1:])
