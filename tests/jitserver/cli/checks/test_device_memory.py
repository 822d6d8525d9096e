"""The check of accelerators' memory: whether the free part is in one piece."""

import pytest

from jitclient.wire.introspection import DeviceMemory
from jitserver.cli.checks.daemon import _of_memory

GIB = 1 << 30


@pytest.mark.parametrize(
    ("device", "level", "says"),
    [
        (DeviceMemory("tpu:0", 3 * GIB, 16 * GIB), "ok", "tpu:0: 3.0 GiB of 16.0 GiB in use"),
        (DeviceMemory("gpu:0", 3 * GIB, 70 * GIB, 4 * GIB, GIB // 4), "ok", "it takes more when it needs more"),
        (DeviceMemory("gpu:0", 3 * GIB, 70 * GIB, 70 * GIB, 67 * GIB), "ok", "has taken all at its start"),
        (DeviceMemory("gpu:0", 50 * GIB, 70 * GIB, 70 * GIB, 15 * GIB), "ok", "15.0 GiB in one piece"),
        (DeviceMemory("gpu:0", 50 * GIB, 70 * GIB, 70 * GIB, GIB), "warning", "20.0 GiB is free, 1.0 GiB in one piece"),
        (DeviceMemory("gpu:0", 69 * GIB, 70 * GIB, 70 * GIB, 0), "ok", "1.0 GiB is free, 0 B in one piece"),
    ],
    ids=["unknown", "grows", "preallocated", "in one piece", "in pieces", "full"],
)
def test_memory_in_pieces_is_a_warning(device: DeviceMemory, level: str, says: str) -> None:
    found = _of_memory(device)
    assert (found.check, found.level) == ("device memory", level)
    assert says in found.says
    assert bool(found.do) == (level != "ok")
    assert ("cuda_async" in found.do) == bool(found.do)
