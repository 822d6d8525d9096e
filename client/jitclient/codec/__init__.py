"""Python values as bytes that are the same wherever the values mean the same: cloudpickle's pickler, and a reader.

- `plain.py`: which values are the same wherever they are equal
- `words.py`: what stands for what is made by name, and for what has a number
- `pickler.py`: writes them
- `unpickler.py`: reads them as data, and calls nothing
- `values.py`: messages' values: statics, options, metadata of trees, exceptions, warnings
"""
