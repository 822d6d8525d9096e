KINDS = {}


def register(f):
    KINDS[f.__name__] = f
    return f


from . import kinds
