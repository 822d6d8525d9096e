"""`python -m jitserver` runs the command `jitserver`."""

from jitserver.cli import main

main()
