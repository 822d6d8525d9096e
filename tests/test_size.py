"""Sizes of the code base can only fall: `sizes.txt` has the limit of each.

`python -m tests.test_size` writes lower limits. `python -m tests.test_size REASON` raises those that are exceeded, and
adds a line with the reason, which names what fell by as much, in the same change or an earlier one of the same issue.
"""

import ast
import collections
import importlib
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from jitclient.wire.messages import Verb

from .test_architecture import PACKAGES, TOP, code_of, imports_of, modules

TABLE = Path(__file__).parent / "sizes.txt"
ROOMS = {"client": TOP / "client", "daemon": TOP / "jitserver", "tests": TOP / "tests"}


def sizes() -> dict[str, int]:
    """Measure all that has a limit."""
    found = {}
    for room, folder in ROOMS.items():
        texts = [path.read_text() for path in folder.rglob("*.py") if "__pycache__" not in path.parts]
        found[f"files of {room}"] = len(texts)
        found[f"lines of {room}"] = sum(len(text.splitlines()) for text in texts)
    sources = [path for folder in PACKAGES.values() for path in folder.rglob("*.py")]
    classes = collections.Counter(
        node.name for path in sources for node in code_of(path) if isinstance(node, ast.ClassDef)
    )
    commands = importlib.import_module("jitserver.cli").main
    return found | {
        "settings": len({name for path in sources for name in re.findall(r"\bJITSERVER_[A-Z_]+", path.read_text())}),
        "commands": sum(1 for _ in _commands(commands, click.Context(commands))),
        "verbs": len(Verb),
        "class names used twice": sum(1 for count in classes.values() if count > 1),
        "modules in circles": _in_circles(
            {name: imports_of(name, path, modules()) for name, path in modules().items()}
        ),
    }


def _commands(group: click.Command, context: click.Context) -> Iterator[click.Command]:
    yield group
    for name in group.list_commands(context) if isinstance(group, click.Group) else ():
        if (command := group.get_command(context, name)) is not None:
            yield from _commands(command, context)


def _in_circles(graph: dict[str, set[str]]) -> int:
    """Count the modules that import themselves, at first or later, by way of others."""

    def reached(start: Iterable[str]) -> set[str]:
        seen: set[str] = set()
        left = list(start)
        while left:
            if (name := left.pop()) not in seen:
                seen.add(name)
                left += graph[name]
        return seen

    return sum(name in reached(uses) for name, uses in graph.items())


def limits() -> dict[str, int]:
    """Read the table."""
    lines = [line for line in TABLE.read_text().splitlines() if line and not line.startswith("#")]
    return {name: int(number) for number, _, name in (line.strip().partition(" ") for line in lines)}


def write(measured: dict[str, int], reason: str) -> None:
    """Write lower limits, and with a reason also higher ones."""
    before = limits() if TABLE.exists() else measured
    notes = [line for line in TABLE.read_text().splitlines() if line.startswith("#")] if TABLE.exists() else []
    raised = {name: size for name, size in measured.items() if size > before.get(name, size)}
    after = {name: size if reason or name not in raised else before[name] for name, size in measured.items()}
    if reason and raised:
        notes.append(f"# {', '.join(f'{name}: {before[name]} to {size}' for name, size in raised.items())}: {reason}")
    width = max(len(str(size)) for size in after.values())
    TABLE.write_text("\n".join([*notes, *(f"{size:>{width}} {name}" for name, size in after.items())]) + "\n")


def test_sizes_have_not_grown_and_limits_are_close() -> None:
    measured, most = sizes(), limits()
    assert measured.keys() == most.keys(), "run python -m tests.test_size"
    grown = {name: f"{size}, at most {most[name]}" for name, size in measured.items() if size > most[name]}
    assert not grown, f"larger than tests/sizes.txt permits; {__doc__}"
    fallen = {name: f"{size}, no more {most[name]}" for name, size in measured.items() if size < most[name]}
    assert not fallen, "smaller than tests/sizes.txt says: run python -m tests.test_size"


def test_circle_counts_the_modules_that_reach_themselves() -> None:
    assert _in_circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == 2


if __name__ == "__main__":
    write(sizes(), " ".join(sys.argv[1:]))
