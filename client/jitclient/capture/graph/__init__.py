"""From a function to all that it depends on, and the order in which that is made.

- `walker.py`: the walk, over the nodes of `nodes.py`; `failures.py`: which failure matters, and by which way it is
  reached
- `schedule.py`: in which order objects are made and completed
- `watch.py`: whether anything was rebound since, which is asked before every call
- `set_order.py`: whether what the function computes may depend on the order of a set; `set_use.py`: whether one code
  object observes it
"""
