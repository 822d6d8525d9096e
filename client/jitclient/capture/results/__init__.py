"""What a trace made on the daemon, as part of its results' trees: as bytes, and made again in the client.

No code travels. A function is the place of its code in what both sides have, and what its closure and defaults hold.

- `places.py`: where code lies in installed modules
- `writer.py`: the daemon's half
- `making.py`: what the bytes may do; `reader.py`: the client's half, which does nothing else
- `called_back.py`: the same for functions that the daemon calls here
"""
