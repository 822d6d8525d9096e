from . import shift
from .scale import scale
