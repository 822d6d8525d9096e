"""What lies outside of Python's objects, and state of the process that a trace obeys.

- recognised by object: `inputs.py`, from the lists in `known_inputs.py`; what stands in its place: `traps.py`
- read while something runs, such as files: `world.py`
- state of the process: `process_state.py`
- what the program changed of what is installed: `patches.py`, `registries.py`
"""
