"""Describers: how each kind of object is captured, as one step that makes it and steps that complete it.

- `dispatch.py`: order of the tests for objects whose type has no describer
- `functions.py`, `classes.py`, `containers.py`, `wrappers.py`, `arrays.py`, `jitted.py`: describers
- `namespaces.py`: names that functions read, and what they import
- `instances.py`: instances of any class, by their pickling or by their state; `attributes.py`: the state
"""
