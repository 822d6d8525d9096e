"""Functions, methods and objects of the package that import in their bodies."""

import functools
from dataclasses import dataclass


def named(x):
    from .h import k

    return k(x)


def module(x):
    from . import h

    return h.k(x)


def absolute(x):
    import usual.h as q

    return q.k(x)


def through_init(x):
    from . import K, k

    return k(x) + K


def doubled(function):
    @functools.wraps(function)
    def wrapper(x):
        from .consts import K

        return function(x) * K

    return wrapper


@doubled
def decorated(x):
    from .h import k

    return k(x)


def nested(x):
    def inner(y):
        from .h import k

        return k(y)

    return inner(x)


through_lambda = lambda x: named(x) + 1


@dataclass(frozen=True)
class Model:
    scale: float = 2.0

    def method(self, x):
        from .h import k

        return k(x) * self.scale

    @classmethod
    def of_class(cls, x):
        from .h import k

        return k(x) * cls.scale

    @staticmethod
    def of_nobody(x):
        from . import h

        return h.k(x)

    @property
    def factor(self):
        from .consts import K

        return K

    def uses_property(self, x):
        return x * self.factor

    def __call__(self, x):
        from .h import k

        return k(x) - self.scale


class Derived(Model):
    def method(self, x):
        from usual.h import k

        return super().method(x) + k(x)
