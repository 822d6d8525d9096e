"""The warning about large numpy arrays that are sent to a program again and again, unchanged."""

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from jitclient.calls.specialisation import Specialisation
from jitclient.notices.labels import size
from jitclient.notices.warned import warn
from jitclient.wire.array_transport import nbytes_of, raw_bytes

_LEAST = 1 << 20  # bytes
_OFTEN = 4  # times at the same address; only then is the content compared, once
_warned: set[tuple[str, str]] = set()


class Resent:
    """Watches the large arrays that are sent to one program, at the leaves `places`."""

    def __init__(self, wanted: Specialisation) -> None:
        self._wanted = wanted
        donated = wanted.donated_sent
        self.places = tuple(
            [n for n, spec in enumerate(wanted.specs_sent) if nbytes_of(spec) >= _LEAST and n not in donated]
        )
        # By leaf: its address and layout, how often in a row, and its checksum.
        self._sent: dict[int, tuple[object, int, int]] = dict.fromkeys(self.places, (None, 0, 0))

    def check(self, leaves: Sequence[Any]) -> None:
        """Check the leaves of a call, in wire order."""
        for n in self.places:
            place_before, times, checksum = self._sent[n]
            leaf = leaves[n]
            if type(leaf) is not np.ndarray:
                continue
            place = leaf.ctypes.data, leaf.shape, leaf.strides, leaf.dtype
            times = times + 1 if place == place_before else 1
            now = zlib.crc32(raw_bytes(leaf)) if times >= _OFTEN else 0
            if times <= _OFTEN:
                self._sent[n] = place, times, now
                continue
            self.places = tuple([other for other in self.places if other != n])
            if now == checksum:
                self._warn(n, leaf.nbytes, times)

    def _warn(self, n: int, nbytes: int, times: int) -> None:
        wanted = self._wanted
        number = n if wanted.order is None else wanted.order[n]
        argument = wanted.names[number]
        if (wanted.name, argument) not in _warned:
            _warned.add((wanted.name, argument))
            warn(
                f"{wanted.name} was sent the same {argument}, {size(nbytes)}, {times} times: pass the result of "
                "jitclient.device_put, which is sent once and stays on the daemon"
            )
