"""A module of one file, which nothing has imported before."""

K = 8.0


def k(x):
    return x * K
