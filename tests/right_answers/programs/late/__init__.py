def run(x):
    from .extra import shift

    return shift(x)
