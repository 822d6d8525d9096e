"""Laying a program out as a script that is recorded: code cells of notebooks and pages, smaller sizes, stand-ins."""

import ast
import json
import re
import shutil
from pathlib import Path

from benchmarks.corpus.fetching import text_of
from benchmarks.corpus.listing import Program

_STAND_INS = Path(__file__).with_name("stand_ins")
_CELL = re.compile(r"^```\{code-cell\}[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
_RECORDED = "from benchmarks.corpus import recording as _recording; _recording.begin(__file__)"
_MAGIC = re.compile(r"^(\s*)([%!].*)$", re.MULTILINE)


def lay_out(program: Program, folder: Path, packages: Path, mirrors: Path | None) -> Path:
    """Write a program into `folder` and its stand-ins into `packages`; returns the script.

    What lies beside a program of this machine is there, too.

    Raises:
        RuntimeError: a file cannot be had, or lacks a text that is to be replaced.
    """
    if not program.repository:
        return _lay_out_beside(Path(program.file), folder)
    for name in program.stand_ins:
        found = _STAND_INS / name
        if found.is_dir():
            shutil.copytree(found, packages / name)
        else:
            shutil.copy(found.with_suffix(".py"), packages)
    for file in program.also:
        (folder / Path(file).name).write_text(text_of(program.repository, program.commit, file, mirrors))
    text = text_of(program.repository, program.commit, program.file, mirrors)
    script = folder / Path(program.file).with_suffix(".py").name
    script.write_text(recorded(code_of(program, text)))
    return script


def _lay_out_beside(file: Path, folder: Path) -> Path:
    for beside in file.parent.iterdir():
        if beside != file:
            (folder / beside.name).symlink_to(beside)
    (folder / file.name).write_text(recorded(file.read_text()))
    return folder / file.name


def code_of(program: Program, text: str) -> str:
    """The code of a program's file, with the changes that the list names.

    Raises:
        RuntimeError: a text that is to be replaced or cut is not there.
    """
    cells = _cells(program.file, text)
    for cut in program.cut:
        if not any(cut in cell for cell in cells):
            raise RuntimeError(f"{program.name} has no cell with {cut!r}")
        cells = [cell for cell in cells if cut not in cell]
    code = "\n\n".join(cells)
    for old, new in program.replace:
        if old not in code:
            raise RuntimeError(f"{program.name} lacks {old!r}")
        code = code.replace(old, new)
    return code


def recorded(code: str) -> str:
    """The code, with a line more at the first place for one: it has begun to record when the rest runs."""
    for node in ast.parse(code).body:
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not is_docstring and not (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
            first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])
            lines = code.splitlines(keepends=True)
            return "".join([*lines[: first - 1], f"{_RECORDED}\n", *lines[first - 1 :]])
    return f"{code}\n{_RECORDED}\n"


def _cells(file: str, text: str) -> list[str]:
    if file.endswith(".py"):
        return [text]
    if file.endswith(".md"):
        cells = _CELL.findall(text)
    else:
        cells = ["".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    return [_MAGIC.sub(r"\1pass  # \2", cell) for cell in cells]
