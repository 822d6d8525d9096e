"""Whether what a function computes may depend on the order of sets, which is another one in every process.

- `order.py`: of all that a capture holds; `use.py`: of one code object
"""
