from .h import k
