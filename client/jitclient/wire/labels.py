"""Labels for people: programs and their arguments (`step(f32[64,256], i32[])`), durations and sizes."""

import datetime
import itertools
import re
from collections.abc import Iterable

from jitclient.wire.messages import Prepare, Spec

_LETTERS = {"float": "f", "uint": "u", "int": "i", "complex": "c", "bfloat": "bf"}
MAX_LEAVES = 4
"""Maximum number of leaves that labels show without regard to the arguments to which they belong."""


def of_spec(spec: Spec) -> str:
    """Return a label such as `f32[64,256]`, with a `*` at the end if the array is weakly typed."""
    kind = spec.dtype.rstrip("0123456789")
    short = _LETTERS[kind] + spec.dtype[len(kind) :] if kind in _LETTERS else spec.dtype
    return f"{short}[{','.join(map(str, spec.shape))}]{'*' if spec.weak_type else ''}"


def of_call(name: str, specs: Iterable[Spec], leaf_names: Iterable[str] = ()) -> str:
    """Return a label with the function's name and the specs of its arguments.

    An argument with several leaves has the first spec and the number of others, so that a batch beside parameters is
    seen. Without names, and for many arguments, the middle is left out.
    """
    texts = list(map(of_spec, specs))
    roots = [re.split(r"[.\[]", leaf)[0] for leaf in leaf_names]
    if len(texts) > MAX_LEAVES and len(roots) >= len(texts):
        groups = [list(group) for _, group in itertools.groupby(zip(roots, texts, strict=False), lambda pair: pair[0])]
        texts = [
            text
            for (_, first), *others in groups
            for text in [first, *([f"… {len(others)} more"] if len(others) > 1 else [other for _, other in others])]
        ]
    if len(texts) > 2 * MAX_LEAVES:
        texts[MAX_LEAVES:-MAX_LEAVES] = [f"… {len(texts) - 2 * MAX_LEAVES} more"]
    return f"{name}({', '.join(texts)})"


def of_program(request: Prepare) -> str:
    """Return the label of the program that a request makes."""
    return of_call(request.name, request.lookup.signature.leaves, request.names)


def seconds(value: float) -> str:
    """Return a duration as text: `240 ms`, `2.3 s`."""
    if value < 1:
        return f"{value * 1000:.0f} ms"
    if value < 120:
        return f"{value:.1f} s"
    return str(datetime.timedelta(seconds=round(value)))


def saved_by_jax(saved: float, by_jax: float) -> str:
    """Return how much of the seconds saved JAX's own cache would save; empty if there is nothing to say."""
    shared = min(saved, by_jax)
    return f"; JAX's own cache would save {seconds(shared)} of it" if shared > 0 else ""


def size(value: float) -> str:
    """Return a number of bytes as text: `640 KiB`, `1.5 GiB`."""
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"
