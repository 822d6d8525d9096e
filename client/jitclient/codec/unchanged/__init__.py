"""Whether anything that a capture went through was rebound since, or holds a value of a trace.

- `watch.py`: the check
- `tracers.py`: values of traces
"""
