SIZE = 4


def k(x):
    return x * SIZE
