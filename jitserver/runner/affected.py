"""Programs of the last run that a change of the source may affect, as far as their captures show it.

A capture names all the user code and values that its program depends on, so a changed function that it does not name is
no part of the program. The values that the changed function computes for it may still differ: the next run decides.
"""

import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

import msgspec

from jitclient.api.report import ProgramRow, Report
from jitclient.wire import labels
from jitserver.store import key_parts, offline
from jitserver.store.entry import Stored

_MAX_NAMED = 4
_CODE = re.compile(r"(code of|helper|class|module) (.+)")
"""Labels of the parts of a capture that are code (`capture/explain/parts.py`)."""


class Used(NamedTuple):
    """Program that the last run used.

    Attributes:
        program: the label of the program, as in a report.
        seconds: the time that making it took.
        names: the names of the code in its capture; None if the disk does not have it.
    """

    program: str
    seconds: float
    names: frozenset[str] | None


def programs_in(report: bytes) -> dict[str, ProgramRow]:
    """Return the programs in a run's report in JSON, by label; none if there is no report."""
    try:
        return {row.program: row for row in msgspec.json.decode(report, type=Report).programs}
    except msgspec.MsgspecError:
        return {}


def used(row: ProgramRow) -> Used:
    """Return a program of a report, with the names in its capture."""
    name = row.program.partition("(")[0]
    # The most recently used first: the report has no keys.
    infos = sorted(offline.infos(name), key=lambda info: -info.last_used)
    stored = next((offline.stored(info.key) for info in infos if info.label == row.program), None)
    if stored is None:
        return Used(row.program, row.seconds, None)
    return Used(row.program, sum(stored.info.seconds.values()), frozenset({name, *_names(stored)}))


def _names(stored: Stored) -> Iterator[str]:
    for part in key_parts.of_capture(key_parts.of_stored(offline, stored), ""):
        if found := _CODE.fullmatch(part.label):
            kind, label = found.groups()
            yield from re.findall(r"\w+", label)
            # The source of a module may be captured whole.
            if kind == "module":
                yield module_name(label.removesuffix(": code").rpartition(".")[2])


def module_name(name: str) -> str:
    """Return the name under which `Used.names` has a module that is captured whole, unlike any name in Python."""
    return f"module {name}"


def consequences(programs: Collection[Used], changed: Collection[frozenset[str]], may_change_all: bool) -> str:
    """Return, as text, what a change means for the programs of the last run; empty if there are none.

    Args:
        programs: the programs.
        changed: for each changed function, class or module, the names that a capture with it has.
        may_change_all: whether the values of any program may differ.
    """
    affected = [one for one in programs if one.names is not None and any(one.names >= names for names in changed)]
    others = [one for one in programs if one not in affected]
    # A program that is not on the disk may depend on anything that changed.
    uncertain = [one for one in others if may_change_all or (changed and one.names is None)]
    n_stay = len(others) - len(uncertain)
    texts = [
        f"{one.program} uses what changed (was made in {labels.seconds(one.seconds)})" for one in affected[:_MAX_NAMED]
    ]
    texts += [f"{len(affected) - _MAX_NAMED} more use it"] if len(affected) > _MAX_NAMED else []
    texts += [f"{len(uncertain):,} may change"] if uncertain else []
    texts += [f"{n_stay:,} stay{'s' if n_stay == 1 else ''}"] if n_stay else []
    return "; ".join(texts)
