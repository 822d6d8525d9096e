"""Contents of a capture as labelled parts, in the user's terms.

- `parts.py`: the division into parts; `texts.py`: names of functions and texts of values
"""
