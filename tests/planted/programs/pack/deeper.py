BASE = 0.125


def twice(x):
    return x * 2 + BASE
