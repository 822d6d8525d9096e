"""The corpus: which programs there are, and those that jitserver gets wrong without any bug planted."""

import ast
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"

NOT_YET: dict[str, str] = {}
"""Programs that differ from plain JAX today, and why. Planted bugs are not judged by them; a test says when they are
right, and then they leave this table.
"""


def names() -> list[str]:
    """All programs, as `module.function`; those that import more come later."""
    found = [
        f"{path.stem}.{node.name}"
        for path in sorted(PROGRAMS.glob("*.py"))
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("case_")
    ]
    return sorted(found, key=lambda name: name.startswith("libraries."))


def judged() -> list[str]:
    """The programs by which planted bugs are judged."""
    return [name for name in names() if name not in NOT_YET]
