"""The command `jitserver`, also as `python -m jitserver`. Its `run` takes a short way, without the other commands."""

import gc
import sys


def main() -> None:
    """Run the command."""
    if sys.argv[1:2] == ["run"]:
        from jitserver.run import front

        command = front.parsed(sys.argv[2:])
        if command is not None:
            front.run(command)
            return
    from jitserver.cli import main as others

    try:
        others()
    finally:
        gc.freeze()  # else the interpreter's last collections take a tenth of a short command


if __name__ == "__main__":
    main()
