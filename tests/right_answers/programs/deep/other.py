from . import TOP

OTHER = TOP + 1
