"""Programs whose cases `runner.py` runs in processes of their own."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

Outcomes = dict[str, dict[str, Any]]

_HERE = Path(__file__).parent
PROGRAMS, MESHES = _HERE / "programs", _HERE / "meshes"


def cases(folder: Path) -> list[str]:
    """The cases of all programs in a folder."""
    return [
        f"{path.stem}.{node.name}"
        for path in sorted(folder.glob("*.py"))
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("case_")
    ]


def named(folder: Path, label: str) -> set[str]:
    """The cases that their programs list under a name."""
    return {
        f"{path.stem}.{case}"
        for path in folder.glob("*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == label
        for case in ast.literal_eval(node.value)
    }


def run(how: str, seed: int, folder: Path, *programs: str, **environment: str) -> Outcomes:
    """Return the outcomes of the cases of programs, all by default, in a process that is "plain" or "served"."""
    done = subprocess.run(
        [sys.executable, str(_HERE / "runner.py"), how, str(folder), *programs],
        env={**os.environ, "PYTHONHASHSEED": str(seed), "JITSERVER_FALLBACK": "local", **environment},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-5000:]}"
    outcomes: Outcomes = json.loads(done.stdout.splitlines()[-1])
    return outcomes
