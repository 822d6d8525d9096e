"""A function as canonical bytes, and back.

`capture` walks from a function to all the user code and values it depends on, and writes them as a program whose bytes
are the same wherever and whenever the function is the same. `load` runs that program in a private namespace.

- `dump.py` and `load.py`: the two ends; `objects.py`: what both call the objects of a capture
"""

from jitclient.codec.capture.dump import Capture, capture
from jitclient.codec.capture.load import Loaded, load

__all__ = ["Capture", "Loaded", "capture", "load"]
