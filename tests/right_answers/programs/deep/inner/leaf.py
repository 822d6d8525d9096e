from .. import TOP


def on_leaf(x):
    from .. import other
    from ..other import OTHER

    return x * TOP * other.OTHER + OTHER


def from_parent(x):
    from .. import TOP as top

    return x * top


class Layer:
    def __call__(self, x):
        from .. import other

        return x * other.OTHER
