from .h import k
from .h import k as exported
