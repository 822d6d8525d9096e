try:
    from optional_accelerator import k
except ImportError:
    from .fallback import k

try:
    from . import missing
except ImportError:
    missing = None
