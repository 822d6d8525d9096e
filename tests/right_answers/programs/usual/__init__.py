from .consts import K
from .h import k

__all__ = ["K", "k"]
