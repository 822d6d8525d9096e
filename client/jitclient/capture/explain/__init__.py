"""What a capture is made of, in words that its user knows.

- `parts.py`; what functions and values are called: `texts.py`
"""
