"""Command `python -m jitclient`: its options, and the program that it runs."""

import argparse
import atexit
import os
from collections.abc import Sequence
from typing import NoReturn

import jitclient
from jitclient.api.run_as_main import run_module, run_script
from jitclient.jaxside import own_jax


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Report the error in one line, without the usage."""
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        "python -m jitclient",
        usage="%(prog)s [--no-jit] [--package NAME ...] [--report] (script.py | -m module) [argument ...]",
        description="Run a program after jitclient.install(): its jitted functions run on the daemon.",
        allow_abbrev=False,
    )
    parser.add_argument("--no-jit", action="store_true", help="do not replace jax.jit")
    parser.add_argument(
        "--package", action="append", default=[], metavar="NAME", help="also route the jits of this installed package"
    )
    parser.add_argument(
        "--report", action="store_true", help="at exit, print which programs were used, and what ran in this process"
    )
    parser.add_argument("-m", dest="module", nargs=argparse.REMAINDER, help="run a module, as python -m does")
    parser.add_argument(
        "script",
        nargs=argparse.REMAINDER,
        help="a script, or a directory or zip file with __main__.py, followed by its arguments",
    )
    return parser


def main(arguments: Sequence[str]) -> int:
    """Run the program that the arguments name.

    Returns:
        The exit status.

    Raises:
        SystemExit: the program raised it, or the arguments are invalid.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    named, run = (options.script, run_script) if options.module is None else (options.module, run_module)
    if not named:
        parser.error("no program given")
    if options.report:
        from jitclient.api import report  # loads msgspec
        from jitclient.calls.usage import usage

        # Register first so that the report runs last: exit handlers run in reverse order.
        atexit.register(report.print_report, usage, os.getpid())
    if not options.no_jit:
        jitclient.install(options.package)
        own_jax.omit_callers()
    return run(named[0], named[1:])
