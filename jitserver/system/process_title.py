"""Title of this process, as `ps` shows it."""

import contextlib
import os

_KEEP_ENVIRONMENT = "SPT_NOENV"
"""Variable that has setproctitle leave `/proc/PID/environ` alone; a title then has the length of the command line."""


def set_title(text: str) -> None:
    """Set the title. Without the package setproctitle, the process keeps its command line.

    Example:
        `set_title("jitserver.run.helper")`
    """
    with contextlib.suppress(ImportError):
        given = os.environ.get(_KEEP_ENVIRONMENT)
        os.environ[_KEEP_ENVIRONMENT] = "1"
        try:
            import setproctitle

            # The text may have bytes of a command line that are no UTF-8.
            setproctitle.setproctitle(text.encode(errors="replace").decode())
        finally:
            if given is None:
                del os.environ[_KEEP_ENVIRONMENT]
            else:
                os.environ[_KEEP_ENVIRONMENT] = given
