def k(x):
    return x * 12.0
