"""The program that a capture is: steps, each of which makes one object or completes one.

- `format.py`: what its pickles hold; read as data: `reading.py`
- run: `builder.py`, `make_functions.py`, `make_classes.py`, `make_values.py`; which loads share classes: `sharing.py`
- what captured code sees of the world: `sandbox.py`; what its imports give: `private_imports.py`; where it says that it
  lives: `captured.py`
"""
