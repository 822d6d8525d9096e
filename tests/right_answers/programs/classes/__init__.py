from .base import Base
from .derived import Derived
