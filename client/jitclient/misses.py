"""What a program that had to be made says of it: why, and what it cost."""

import contextlib
import sys
from collections.abc import Hashable, Sequence

from jitclient import labels
from jitclient.errors import JitserverError
from jitclient.naming import leaf_names
from jitclient.session import Session
from jitclient.specialisation import Specialisation
from jitclient.warned import warn
from jitclient.wire.explaining import Explain, Explained
from jitclient.wire.messages import Lookup, Prepared, Spec, Verb

_MOST_CAUSES = 3
_MANY_SHAPES = 5


def say_why(session: Session, wanted: Specialisation, lookup: Lookup, parts: bytes, prepared: Prepared) -> None:
    """Says on stderr why a program was made just now, and how long that took."""
    with contextlib.suppress(JitserverError):  # the program is there: nothing may fail for want of a reason
        explained: Explained = session.ask(Verb.EXPLAIN, Explain(lookup, wanted.name, parts), Explained)
        taken = labels.seconds(sum(prepared.seconds.values()))
        program = labels.of_call(wanted.name, wanted.specs)
        print(f"jitserver: {program} was compiled in {taken}; {_cause(explained)}", file=sys.stderr, flush=True)


def _cause(explained: Explained) -> str:
    if explained.nearest is None:
        return "the first program of that name"
    causes = [str(difference) for difference in explained.differences]
    more = [f"and {len(causes) - _MOST_CAUSES} more differences"] if len(causes) > _MOST_CAUSES else []
    return "; ".join(causes[:_MOST_CAUSES] + more)


class Misses:
    """The misses of one function in this process: many that differ in shapes only earn one warning."""

    def __init__(self) -> None:
        self._shapes: dict[Hashable, list[tuple[Spec, ...]]] = {}
        self._warned = False

    def note(self, wanted: Specialisation, alike: Hashable) -> None:
        """Notes that a program was made for `wanted`; `alike` is what else decides a program than the specs."""
        ranks = tuple((len(spec.shape), spec.dtype, spec.weak_type) for spec in wanted.specs)
        met = self._shapes.setdefault((alike, ranks), [])
        met.append(wanted.specs)
        varying = _varying(met)
        if self._warned or not varying:
            return
        self._warned = True
        names = leaf_names(wanted.fun, wanted.structure, [where for where, _ in wanted.statics])
        last = ", ".join(labels.of_spec(specs[varying[0]]) for specs in met[-3:])
        warn(
            f"{wanted.name} was compiled for {len(met)} shapes of {_listed([names[n] for n in varying])} (…, {last}), "
            "each a program of its own: pad it to a few sizes; or, where its size follows from a number, pass that "
            "number as a static argument and build it inside",
            RuntimeWarning,
        )


def _varying(met: Sequence[tuple[Spec, ...]]) -> list[int]:
    """The leaves that had many shapes."""
    if len(met) < _MANY_SHAPES:
        return []
    return [n for n, leaf in enumerate(zip(*met, strict=True)) if len({spec.shape for spec in leaf}) >= _MANY_SHAPES]


def _listed(names: list[str]) -> str:
    shown = [f"argument {name}" for name in names[:_MOST_CAUSES]]
    more = [f"{len(names) - _MOST_CAUSES} more"] if len(names) > _MOST_CAUSES else []
    return " and ".join(shown + more)
