"""The mutants: one change each, by one operator, to one file of the rooms that may cost warmth only."""

import ast
import dataclasses
import functools
import hashlib
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from .operators import Site, sites

TOP = Path(__file__).parents[2]

ROOMS = (
    "client/jitclient/capture/**/*.py",  # the capture, the loader, results, the manifest
    "client/jitclient/jaxside/naming.py",  # trees
    "client/jitclient/jaxside/node_order.py",
    "client/jitclient/jaxside/static_leaves.py",
    "client/jitclient/jaxside/tree.py",
    "client/jitclient/calls/identity.py",
    "jitserver/programs/keys.py",
)


@dataclasses.dataclass(frozen=True)
class Mutant:
    """A bug that can be planted.

    Attributes:
        file: the path from the top of the project.
        line: where the changed piece begins.
        operator: what happens to it.
        number: which of the operator's changes on that line it is, from 1.
    """

    file: str
    line: int
    operator: str
    number: int = 1

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.operator}" + (f".{self.number}" if self.number > 1 else "")

    @property
    def module(self) -> str:
        """The name of the module."""
        parts = Path(self.file).with_suffix("").parts
        return ".".join(part for part in parts if part not in ("client", "__init__"))


def files(top: Path = TOP) -> list[str]:
    """The files of the rooms, sorted."""
    return sorted({str(path.relative_to(top)) for room in ROOMS for path in top.glob(room)})


@functools.cache
def mutants_of(file: str, top: Path = TOP) -> list[Mutant]:
    """All mutants of a file, in the order of its code."""
    return [mutant for mutant, _ in _with_sites(file, ast.parse((top / file).read_text()))]


def mutated(mutant: Mutant, top: Path = TOP) -> str:
    """The file's text with the bug in it."""
    tree = ast.parse((top / mutant.file).read_text())
    next(site for found, site in _with_sites(mutant.file, tree) if found == mutant).put()
    return ast.unparse(ast.fix_missing_locations(tree))


def chosen(
    count: int, seed: int, top: Path = TOP, *, keep: Callable[[Mutant], bool] = lambda mutant: True
) -> list[Mutant]:
    """So many mutants, always the same for a seed: one of each file first, then all operators in turn.

    Those for which `keep` is false are passed over.
    """
    by_hash = functools.partial(_hash, seed)
    of_files = [sorted(mutants_of(file, top), key=by_hash) for file in files(top)]
    firsts = sorted((found[0] for found in of_files if found), key=by_hash)
    others = defaultdict(list)
    for mutant in sorted(itertools.chain(*(found[1:] for found in of_files)), key=by_hash):
        others[mutant.operator].append(mutant)
    in_turn = itertools.chain(*itertools.zip_longest(*(others[name] for name in sorted(others))))
    return list(itertools.islice(filter(keep, filter(None, (*firsts, *in_turn))), count))


def sample(mutants: Sequence[Mutant], count: int, seed: int) -> list[Mutant]:
    """So many of them; a smaller sample is the beginning of a larger one."""
    return sorted(mutants, key=functools.partial(_hash, -seed - 1))[:count]


def named(text: str, top: Path = TOP) -> Mutant:
    """The mutant of that id; ValueError if there is none."""
    file = text.partition(":")[0]
    found = {str(mutant): mutant for mutant in mutants_of(file, top)} if file in files(top) else {}
    if text not in found:
        raise ValueError(f"no such mutant: {text}")
    return found[text]


def _with_sites(file: str, tree: ast.Module) -> Iterator[tuple[Mutant, Site]]:
    seen: Counter[tuple[int, str]] = Counter()
    for site in sites(tree):
        seen[site.line, site.operator] += 1
        yield Mutant(file, site.line, site.operator, seen[site.line, site.operator]), site


def _hash(seed: int, mutant: Mutant) -> bytes:
    return hashlib.sha256(f"{seed}:{mutant}".encode()).digest()
