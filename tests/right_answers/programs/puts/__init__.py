def scaled(x):
    return x * SCALE  # noqa: F821
