"""Commands whose process is prepared by a line of Python before they begin.

`preexec_fn` would fork the process of the tests instead, in which JAX has threads.
"""

import sys


def prepared(source: str, *command: str) -> list[str]:
    return [sys.executable, "-ISc", f"import os, sys\n{source}\nos.execv(sys.argv[1], sys.argv[1:])", *command]
