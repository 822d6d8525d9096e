"""How each kind of object is described, as what makes it and what completes it.

- in which order an object is asked what it is: `others.py`
- `functions.py`, `classes.py`, `containers.py`, `wrappers.py`, `instances.py`, `arrays.py`, `jitted.py`
- the names that functions read: `namespaces.py`; what they import as they run: `body_imports.py`
- what of an object its pickle forgets: `own_pickles.py`, with `unharmed.py` for what a copy may touch; what an object
  is then described by: `attributes.py`
"""
