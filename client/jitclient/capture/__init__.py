"""Python values, and functions with all that they depend on, as bytes that are the same wherever they mean the same.

How values are written and read (cloudpickle's pickler, and a reader that calls nothing) is here:

- `plain.py`: which values are the same wherever they are equal, and what stands for all others
- `pickler.py` writes them, `unpickler.py` reads them as data, of a peer only such as ours
- `tracers.py`: which values are those of traces
- `values.py`: messages' values: statics, options, metadata of trees, exceptions, warnings

The folders stand on that, each on those above it only:

- `user_code/`: what is the user's, what is installed, and what code says that it reads
- `ambient/`: what lies outside of Python's objects, and what a program changed of what is installed
- `graph/`: the walk from a function to all that it depends on, the order in which that is made, and whether any of it
  was rebound since, which is asked before every call
- `reducers/`: how each kind of object is described
- `steps/`: the program that a capture is, read as data or run
- `explain/`: what a capture is made of, in words that its user knows
- `capture/`: both ends: `dump.py` (client) and `load.py` (daemon). Start reading there.
- `results/`: what a trace made, on its way back
"""
