"""Command lines that start other processes of the `jitserver` command."""

import os
import sys

from jitserver.run.request import python_options


def jitserver(*words: str) -> list[str]:
    """Return the command line of a `jitserver` command in this interpreter, started as this process was."""
    script = sys.argv[0]
    # Python puts the directory of the script, not the working directory, in front of `sys.path`.
    started = [script] if os.path.basename(script) == "jitserver" and os.path.isfile(script) else ["-m", "jitserver"]
    return [sys.executable, *python_options(), *started, *words]
