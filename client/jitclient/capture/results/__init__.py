"""Static objects in results' trees that a trace made on the daemon: sent as bytes, made again in the client.

No code is sent. A function is the place of its code, which both sides have, and the contents of its closure and
defaults.

- `places.py`: places of code in installed modules
- `writer.py`: the daemon's half
- `reader.py`: the client's half, which calls only the functions of `making.py`; also for functions that the daemon
  calls back
"""
