"""Entry point of `python -m jitclient script.py arguments...`: runs a program under `jitclient.install()`."""

import sys

if __name__ == "__main__":
    if not sys.flags.safe_path:
        # `-m` added this entry to find jitclient. The program gets an entry of its own.
        sys.path.pop(0)
    from jitclient.api.command import main

    status = main(sys.argv[1:])
    # Under `python -i`, the interpreter continues with a prompt instead.
    if status and not sys.flags.inspect:
        sys.exit(status)
