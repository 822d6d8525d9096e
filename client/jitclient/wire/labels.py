"""Labels for people: programs and their arguments (`step(f32[64,256], i32[])`), durations and sizes."""

import datetime
from collections.abc import Iterable

from jitclient.wire.messages import Spec

_LETTERS = {"float": "f", "uint": "u", "int": "i", "complex": "c", "bfloat": "bf"}
_MAX_LABELS = 4


def of_spec(spec: Spec) -> str:
    """Return a label such as `f32[64,256]`, with a `*` at the end if the array is weakly typed."""
    kind = spec.dtype.rstrip("0123456789")
    short = _LETTERS[kind] + spec.dtype[len(kind) :] if kind in _LETTERS else spec.dtype
    return f"{short}[{','.join(map(str, spec.shape))}]{'*' if spec.weak_type else ''}"


def of_call(name: str, specs: Iterable[Spec], max_labels: int = _MAX_LABELS) -> str:
    """Return a label with the function's name and the specs of its first `max_labels` arguments."""
    labels = [of_spec(spec) for spec in specs]
    more = [f"… {len(labels) - max_labels} more"] if len(labels) > max_labels else []
    return f"{name}({', '.join(labels[:max_labels] + more)})"


def seconds(value: float) -> str:
    """Return a duration as text: `240 ms`, `2.3 s`."""
    if value < 1:
        return f"{value * 1000:.0f} ms"
    if value < 120:
        return f"{value:.1f} s"
    return str(datetime.timedelta(seconds=round(value)))


def size(value: float) -> str:
    """Return a number of bytes as text: `640 KiB`, `1.5 GiB`."""
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"
