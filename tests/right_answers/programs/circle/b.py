from . import a


def of_b(x):
    return x * a.A
