"""The program that executes the cells of a notebook: `python -m jitserver.runner.notebook FILE RECORD [PACKAGE ...]`.

The kernel runs under jitclient, in the directory of the notebook. The file is only read.
"""

import ast
import asyncio
import contextlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jitclient.api import kernels
from jitclient.errors import MissingPackage
from jitserver.run import record

_PACKAGES = ("nbclient", "ipykernel")
_REPORT = '__import__("jitclient.api.report", fromlist=[""]).json_report({packages!r})'
_REPORT_SECONDS = 10.0


def check_packages() -> None:
    """Check that the packages which execute a notebook are installed.

    Raises:
        MissingPackage: one is not.
    """
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        names = " ".join(missing)
        raise MissingPackage(f"a notebook needs {' and '.join(missing)}. Run `pip install {names}`.")


def main(path: str, directory: str, packages: Sequence[str]) -> int:
    """Execute a notebook, print what its cells print, and write the report of its kernel.

    Args:
        path: path of the notebook.
        directory: directory of the record.
        packages: the installed packages whose jits run on the daemon.

    Returns:
        The exit status.
    """
    kernels.run_under_jitclient(packages)
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, DeadKernelError

    where = os.path.realpath(path)
    notebook = nbformat.read(where, as_version=4)
    client = NotebookClient(notebook, timeout=None, resources={"metadata": {"path": os.path.dirname(where)}})
    with client.setup_kernel(env={**os.environ, "JPY_SESSION_NAME": where}):
        try:
            for index, cell in enumerate(notebook.cells):
                try:
                    client.execute_cell(cell, index)
                finally:
                    _print_outputs(cell)
        except CellExecutionError as error:
            print(error, file=sys.stderr)
            return 1
        except DeadKernelError as error:
            print(f"the kernel of {path} died: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            asyncio.run(client.km.interrupt_kernel())
            raise
        finally:
            # Without a report, the command says so.
            with contextlib.suppress(Exception):
                record.write_report(Path(directory), asyncio.run(_report_of_kernel(client, packages)))
    return 0


def _print_outputs(cell: Any) -> None:
    for output in cell.get("outputs", ()):
        if output["output_type"] == "stream":
            print(output["text"], end="", file=getattr(sys, output["name"]), flush=True)


async def _report_of_kernel(client: Any, packages: Sequence[str]) -> str:
    wanted = {"report": _REPORT.format(packages=list(packages))}
    reply = await client.kc.execute_interactive(
        "", store_history=False, user_expressions=wanted, allow_stdin=False, timeout=_REPORT_SECONDS
    )
    text: str = ast.literal_eval(reply["content"]["user_expressions"]["report"]["data"]["text/plain"])
    return text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
