"""Laying a public program out as a script: the code cells of notebooks and pages, smaller sizes, stand-ins."""

import json
import re
import shutil
from pathlib import Path

from benchmarks.corpus.fetching import text_of
from benchmarks.corpus.listing import Program

_STAND_INS = Path(__file__).with_name("stand_ins")
_CELL = re.compile(r"^```\{code-cell\}[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
_MAGIC = re.compile(r"^(\s*)([%!].*)$", re.MULTILINE)


def lay_out(program: Program, folder: Path, packages: Path, mirrors: Path | None) -> Path:
    """Write a program into `folder` and its stand-ins into `packages`; returns the script.

    Raises:
        RuntimeError: a file cannot be had, or lacks a text that is to be replaced.
    """
    if not program.repository:
        return Path(program.file)
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
    script.write_text(code_of(program, text))
    return script


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


def _cells(file: str, text: str) -> list[str]:
    if file.endswith(".py"):
        return [text]
    if file.endswith(".md"):
        cells = _CELL.findall(text)
    else:
        cells = ["".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    return [_MAGIC.sub(r"\1pass  # \2", cell) for cell in cells]
