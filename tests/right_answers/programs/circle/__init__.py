from . import a
from .b import of_b
