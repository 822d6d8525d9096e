"""Scan of a program for reasons why it cannot start in a helper's child.

Most of what a program changes before it imports a module is noticed when it imports it (`preloaded.py`), and the run
starts again. That is too late for a program that has had effects before.
"""

import ast
import os
from collections.abc import Container, Iterator

from jitserver.run import history
from jitserver.run.request import Command

_RUNNERS = frozenset(
    [
        "coverage",
        "debugpy",
        "ipykernel",
        "ipykernel_launcher",
        "ipython",
        "kernprof",
        "memory_profiler",
        "nose2",
        "pyinstrument",
        "pytest",
        "scalene",
        "viztracer",
    ]
)
"""Installed programs that print something before they run the user's program, and watch it."""

_SETTERS = ("putenv", "unsetenv", "load_dotenv")
_ENVIRONMENTS = ("environ", "environb")
_READS = ("get", "items", "keys", "values", "copy")
_READERS = ("dict", "len", "list", "print", "repr", "sorted", "str")


def refusal(command: Command, cwd: str, loaded: Container[str]) -> str:
    """Return why a program must have a fresh process; empty if it need not.

    Args:
        command: the program.
        cwd: the working directory of the program.
        loaded: names of the preloaded modules.
    """
    for name in command.packages:
        if name in loaded:
            return f"the helper has already imported {name}, so its jits cannot be routed to the daemon"
    started = command.name.partition(".")[0] if command.is_module else os.path.basename(command.name)
    if started.lower() in _RUNNERS:
        return f"{command.name} runs code from elsewhere"
    if history.must_be_fresh(command, cwd):
        return "in an earlier run, it changed something that imports depend on after it had written something"
    return "" if command.is_module else _problem(os.path.join(cwd, command.name))


def directory_of(command: Command, cwd: str) -> str:
    """Return the directory in which the imports of a program look first."""
    return cwd if command.is_module else os.path.dirname(os.path.realpath(os.path.join(cwd, command.name)))


def _problem(file: str) -> str:
    """Return where a script may set environment variables; empty if it does not."""
    try:
        with open(file, "rb") as source:
            tree = ast.parse(source.read())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return ""  # the run says so
    return next((f"{file}:{line} may set environment variables" for line in _sets_variables(tree)), "")


def _sets_variables(tree: ast.AST) -> Iterator[int]:
    """Yield the lines in which a program may set environment variables, by a name of `os` or of python-dotenv."""
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            if any(alias.name in _ENVIRONMENTS and alias.asname not in (None, alias.name) for alias in node.names):
                yield node.lineno
        elif isinstance(node, ast.Constant) and node.value in _ENVIRONMENTS:
            yield node.lineno
        elif isinstance(node, ast.Name | ast.Attribute):
            name = node.id if isinstance(node, ast.Name) else node.attr
            if name in _SETTERS or (name in _ENVIRONMENTS and not _is_read(node, parents[node], parents)):
                yield node.lineno


def _is_read(node: ast.expr, parent: ast.AST, parents: dict[ast.AST, ast.AST]) -> bool:
    """Return whether an expression is certainly only read."""
    if not isinstance(getattr(node, "ctx", None), ast.Load):
        return False
    if isinstance(parent, ast.Subscript):
        return parent.value is node and isinstance(parent.ctx, ast.Load)
    if isinstance(parent, ast.Attribute):
        called = parents.get(parent)
        return parent.attr in _READS and isinstance(called, ast.Call) and called.func is parent
    if isinstance(parent, ast.Call):
        return isinstance(parent.func, ast.Name) and parent.func.id in _READERS
    if isinstance(parent, ast.Dict):  # {**os.environ}
        return node in parent.values and parent.keys[parent.values.index(node)] is None
    return isinstance(parent, ast.Compare | ast.FormattedValue | ast.comprehension | ast.For)
