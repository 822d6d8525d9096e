"""What a capture is made of, in words that its user knows, so that two captures can be compared.

- `parts.py`, put together as `drafts.py`; `texts.py`: what functions and values are called
"""
