"""Ambient inputs (reads from outside Python objects) and process state that affects a trace.

- `inputs.py`: lists of ambient inputs, which are recognized by object; `traps.py`: their stand-ins in captured code
- `audit.py`: reads noticed while code runs, such as of files
- `process_state.py`: state of the process
- `patches.py`: changes that the program made to installed packages
"""
