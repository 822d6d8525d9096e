from .h import *
from .h import _hidden
