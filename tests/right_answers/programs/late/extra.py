from . import run as _run

SHIFT = 11.0


def shift(x):
    return x + SHIFT + (0 if callable(_run) else 1)
