"""`python -m jitclient script.py arguments...`: a program, unchanged, with `jitclient.install()` in force."""

import sys

if __name__ == "__main__":
    if not sys.flags.safe_path:
        sys.path.pop(0)  # where `-m` looked for jitclient: the program has an entry of its own
    from jitclient.api.command import main

    status = main(sys.argv[1:])
    if status and not sys.flags.inspect:  # `python -i` goes on with a prompt
        sys.exit(status)
