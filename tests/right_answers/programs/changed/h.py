K = 1.0


def k(x):
    return x * K
