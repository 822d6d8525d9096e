"""Python values as canonical bytes: a pickler based on cloudpickle, and a reader that calls nothing.

- `plain.py`: plain values, and stand-ins for all others
- `pickler.py`: the writer; `unpickler.py`: the reader, which accepts only what the writer produces
- `tracers.py`: detection of JAX tracers
- `values.py`: values in messages: static arguments, options, tree metadata, exceptions, warnings
"""
