def scale(x):
    return x * 7.0
