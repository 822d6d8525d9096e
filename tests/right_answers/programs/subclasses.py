"""Questions that code asks of classes."""


class Base:
    FACTOR = 1.0


class First(Base):
    FACTOR = 3.0


class Second(Base):
    FACTOR = 5.0


def case_subclasses(jit):
    return jit(lambda x: x * sum(cls.FACTOR for cls in Base.__subclasses__()))(1.0)
