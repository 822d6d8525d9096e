K = 5.0


def k(x):
    return x * K
