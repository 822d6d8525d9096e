"""Reads the program that runs it."""


def has_main(x):
    import __main__

    return x + (1.0 if hasattr(__main__, "outcome") else 2.0)
