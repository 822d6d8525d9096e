"""Which functions of the rooms the programs call: a bug in code that nothing runs proves nothing."""

import ast
from collections.abc import Iterator, Set
from pathlib import Path

from .mutants import TOP, Mutant

WATCHER = """\
import _thread, os, sys, threading

_file = os.open({file!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
_top, _write, _start, _seen = {top!r}, os.write, _thread.start_new_thread, set()

def _see(frame, event, _):
    code = frame.f_code
    if code not in _seen:
        _seen.add(code)
        if code.co_filename.startswith(_top):
            _write(_file, f"{{code.co_filename[len(_top):]}}:{{code.co_firstlineno}}\\n".encode())

def _watched(function, *arguments):
    def run(*given, **named):
        sys.settrace(_see)
        return function(*given, **named)
    return _start(run, *arguments)

_thread.start_new_thread = _watched  # which some threads are started with
threading.settrace(_see)
sys.settrace(_see)
"""
"""A `sitecustomize`: each function that is called says so once, with its file and first line."""


def watch(folder: Path, top: Path, calls: Path) -> None:
    """Put a watcher into a folder, which notes the functions below `top` in `calls`."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(WATCHER.format(file=str(calls), top=f"{top}/"))


def is_reached(mutant: Mutant, called: Set[str], top: Path = TOP) -> bool:
    """Whether the function that has the mutant was called. What is outside of functions runs with the import."""
    around = [lines for lines in _functions(ast.parse((top / mutant.file).read_text())) if mutant.line in lines]
    if not around:
        return True
    innermost = min(around, key=len)
    return any(f"{mutant.file}:{line}" in called for line in innermost)


def _functions(tree: ast.Module) -> Iterator[range]:
    """The lines of each function, its decorators included, with which its code begins."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            yield range(first, (node.end_lineno or first) + 1)
