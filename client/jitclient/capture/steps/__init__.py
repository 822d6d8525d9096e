"""The program that a capture is: steps, each of which makes one object or completes one.

- `format.py`: what its pickles hold, read as data
- run: `builder.py`, with `make_classes.py` and `make_values.py`; which loads share classes: `sharing.py`
- what captured code sees of the world, and its imports give: `sandbox.py`; where it says that it lives: `captured.py`
"""
