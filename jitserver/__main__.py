"""`python -m jitserver` is the command `jitserver`."""

from jitserver.cli import main

main()
