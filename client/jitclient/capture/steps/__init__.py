"""The program that a capture contains: steps, each of which makes one object or completes one.

- `format.py`: contents of the pickles, read as data
- `builder.py`: the interpreter of a program, with steps in `make_classes.py` and `make_values.py`
- `sharing.py`: classes that several loads share
- `sandbox.py`: builtins and imports of captured code; `captured.py`: its nominal module
"""
