"""What is the user's own and travels by value, what is installed and travels by name, and what code says that it reads.

- which is which: `installed.py`, `ownership.py`; where an installed object lives: `names.py`
- code: what of it is only its location: `code.py`
- what it reads by name: `bytecode.py`; what the statements of a module bind: `outline.py`, `module_sources.py`,
  `source_values.py`; what the body of a class defined: `class_body.py`
- what JAX's registry of pytrees says: `registry.py`; what absl and beartype make: `libraries.py`
"""
