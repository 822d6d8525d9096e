"""Entry point of the `jitserver` command and of `python -m jitserver`.

`jitserver run` is dispatched first, without importing the other commands, so that it starts faster.
"""

import contextlib
import gc
import sys


def main() -> None:
    """Parse the command line and run the `jitserver` command."""
    if sys.argv[1:2] == ["run"]:
        from jitclient.errors import SettingsError
        from jitserver.run import front

        command = None
        with contextlib.suppress(SettingsError):  # the command below says it
            command = front.parsed(sys.argv[2:])
        if command is not None:
            front.run(command)
            return
    from jitserver.cli import main as others

    try:
        others()
    finally:
        # Exempt all objects from garbage collection: the collections at interpreter exit take a tenth of a short
        # command.
        gc.freeze()


if __name__ == "__main__":
    main()
