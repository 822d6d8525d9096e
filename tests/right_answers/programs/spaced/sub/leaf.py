from ..mod import k


def kk(x):
    return k(k(x))
