def k(x):
    return x * 6.0
