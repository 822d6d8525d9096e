"""Captures: Python functions, with all user code and values that they depend on, as canonical bytes.

Equal functions have equal bytes in every process. Start with `dump.py`, the client's half, and `load.py`, the daemon's
half. `objects.py` numbers the captured objects that both sides can name.

Each directory uses only those listed above it:

- `codec/`: values as canonical bytes, and their reader, which calls nothing
- `user_code/`: distinction between user code and installed code, and analysis of what code reads
- `ambient/`: inputs from outside Python objects, and changes that a program made to installed packages
- `graph/`: the walk from a function to all that it depends on, the order of construction, and the check before each
  call that nothing was rebound
- `describe/`: the description of each kind of object
- `steps/`: the program that a capture contains, read as data or run
- `explain/`: the contents of a capture as labelled parts, in the user's terms
- `results/`: objects that a trace made, on their way back to the client
- `manifest/`: data outside the capture that a trace read
"""
