"""The table of docs/architecture.md says what is true: rooms, who uses whom, and that no arrow runs in a circle."""

import ast
import graphlib
import re
from pathlib import Path

import pytest

TOP = Path(__file__).parents[1]
PACKAGES = {"jitclient": TOP / "client" / "jitclient", "jitserver": TOP / "jitserver"}


def modules() -> dict[str, Path]:
    found = {}
    for package, folder in PACKAGES.items():
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            found[".".join((package, *(part for part in parts if part != "__init__")))] = path
    return found


def imports_of(name: str, path: Path, known: dict[str, Path]) -> set[str]:
    """The modules of ours that a module imports, at its top or inside its functions, annotations' imports aside."""
    tree = ast.parse(path.read_text())
    hints = [node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)]
    skipped = {id(inner) for hint in hints for inner in ast.walk(hint)}
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found = set()
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *filter(None, [base])])
            found |= {f"{base}.{alias.name}" if f"{base}.{alias.name}" in known else base for alias in node.names}
    return {module for module in found if module in known and module != name}


def table() -> dict[str, tuple[list[str], set[str]]]:
    """The rows of the page's table: room -> (the modules or packages it is made of, the rooms it uses)."""
    text = (TOP / "docs" / "architecture.md").read_text().partition("## The rooms")[2].partition("\n## ")[0]
    rows = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and not set(cells[0]) <= {"-", " "} and cells[0] != "Room":
            rows[cells[0]] = (
                re.findall(r"`([\w.]+)`", cells[1]),
                {use for use in cells[3].split(", ") if use != "none"},
            )
    assert rows, "docs/architecture.md has no table of rooms"
    return rows


def room_of(module: str, rows: dict[str, tuple[list[str], set[str]]]) -> str:
    """The room whose longest name begins the module's."""
    owners = [
        (len(part), room)
        for room, (parts, _) in rows.items()
        for part in parts
        if module == part or module.startswith(f"{part}.")
    ]
    assert owners, f"{module} is in no room of docs/architecture.md"
    return max(owners)[1]


def test_the_table_names_what_exists() -> None:
    known = modules()
    missing = [part for parts, _ in table().values() for part in parts if part not in known]
    assert not missing


@pytest.mark.parametrize("room", table())
def test_a_room_uses_what_the_table_says(room: str) -> None:
    known, rows = modules(), table()
    used = {
        room_of(imported, rows)
        for module, path in known.items()
        if room_of(module, rows) == room
        for imported in imports_of(module, path, known)
    }
    assert used - {room} == rows[room][1]


def test_no_arrow_runs_in_a_circle() -> None:
    rows = table()
    graphlib.TopologicalSorter({room: uses for room, (_, uses) in rows.items()}).prepare()
    known = modules()
    graphlib.TopologicalSorter({module: imports_of(module, path, known) for module, path in known.items()}).prepare()


def test_only_the_engine_imports_jax_at_its_top() -> None:
    for module, path in modules().items():
        top = [node for node in ast.parse(path.read_text()).body if isinstance(node, (ast.Import, ast.ImportFrom))]
        names = {alias.name for node in top if isinstance(node, ast.Import) for alias in node.names}
        names |= {node.module or "" for node in top if isinstance(node, ast.ImportFrom)}
        if any(name.partition(".")[0] in ("jax", "jaxlib") for name in names):
            assert module.startswith(("jitserver.engine", "jitserver.demo")), f"{module} imports jax"
