from .base import Base


class Derived(Base):
    scale = 3.0
