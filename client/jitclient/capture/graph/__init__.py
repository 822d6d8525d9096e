"""The graph of everything that a function depends on, and the order in which a program rebuilds its objects.

- `walker.py`: the walk that builds the graph, from the nodes of `nodes.py`; `failures.py`: which failure of a walk
  matters, and the path by which the failed object is reached
- `schedule.py`: the order in which objects are made and completed
- `watch.py`: the check, made before every call, that nothing was rebound since the capture
- `set_order.py`: whether the function's results may depend on the order of a set; `set_use.py`: whether one code object
  observes that order
"""
