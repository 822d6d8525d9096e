from .consts import K


def k(x):
    return x * K
