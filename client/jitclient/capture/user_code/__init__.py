"""Separation of user code, captured by value, from installed code, captured by name; analysis of what code reads.

- `installed.py`, `ownership.py`: which modules, classes and functions are the user's; `names.py`: names of installed
  objects
- `code.py`: canonical form of a code object, apart from its location
- `bytecode.py`: names that code reads; `class_body.py`: definition of a class
- `callback_only.py`: functions that code only passes to JAX as callbacks
- `registry.py`: JAX's registry of pytrees; `libraries.py`: objects of absl, attrs, beartype, omegaconf and wandb
"""
