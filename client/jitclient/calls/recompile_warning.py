"""The warning about a function that is compiled for one shape after another."""

from collections.abc import Hashable, Sequence

from jitclient.calls.specialisation import Specialisation
from jitclient.notices import labels
from jitclient.notices.warned import warn
from jitclient.wire.messages import Spec

_MOST_NAMED = 3
_MANY_SHAPES = 5


class RecompileWarning:
    """Counts the shapes that one function was compiled for in this process; warns once."""

    def __init__(self) -> None:
        self._shapes: dict[Hashable, list[tuple[Spec, ...]]] = {}
        self._warned = False

    def note(self, wanted: Specialisation, alike: Hashable) -> None:
        """Note a compilation; `alike` is what decides the program besides the specs."""
        if (getattr(wanted.fun, "__module__", None) or "").startswith("jitclient."):
            return  # an operation on an array, which nobody can pad
        ranks = tuple((len(spec.shape), spec.dtype, spec.weak_type) for spec in wanted.specs)
        try:
            met = self._shapes.setdefault((alike, ranks), [])
        except Exception:  # of the user's classes, which may refuse to be compared
            return
        met.append(wanted.specs)
        varying = _varying(met)
        if self._warned or not varying:
            return
        self._warned = True
        names = wanted.names
        last = ", ".join(labels.of_spec(specs[varying[0]]) for specs in met[-3:])
        warn(
            f"{wanted.name} was compiled for {len(met)} shapes of {_listed([names[n] for n in varying])} (…, {last}), "
            "each a program of its own: pad it to a few sizes; or, where its size follows from a number, pass that "
            "number as a static argument and build it inside"
        )


def _varying(met: Sequence[tuple[Spec, ...]]) -> list[int]:
    """Positions of the leaves that had many shapes."""
    if len(met) < _MANY_SHAPES:
        return []
    return [n for n, leaf in enumerate(zip(*met, strict=True)) if len({spec.shape for spec in leaf}) >= _MANY_SHAPES]


def _listed(names: list[str]) -> str:
    shown = [f"argument {name}" for name in names[:_MOST_NAMED]]
    more = [f"{len(names) - _MOST_NAMED} more"] if len(names) > _MOST_NAMED else []
    return " and ".join(shown + more)
