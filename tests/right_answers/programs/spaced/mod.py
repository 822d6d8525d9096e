def k(x):
    return x * 2.5
