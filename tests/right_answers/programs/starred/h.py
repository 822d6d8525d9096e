__all__ = ["k"]
_hidden = 2.0
VISIBLE = 9.0


def k(x):
    return x * _hidden
