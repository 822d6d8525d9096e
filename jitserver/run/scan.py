"""Scan of a program's source for reasons why it cannot start with preloaded modules."""

import ast
import importlib.machinery
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence

from jitclient.capture.user_code.installed import find_source, is_installed_path
from jitserver.run.request import Command

_CALLS = {
    **dict.fromkeys(("putenv", "unsetenv", "load_dotenv"), "sets environment variables"),
    **dict.fromkeys(("addsitedir", "setdlopenflags"), "changes how modules are found"),
    **dict.fromkeys(("filterwarnings", "simplefilter", "resetwarnings", "catch_warnings"), "filters warnings"),
    **dict.fromkeys(("captureWarnings", "setLoggerClass"), "changes how imports report"),
    **dict.fromkeys(("addaudithook", "settrace", "setprofile"), "watches imports"),
    **dict.fromkeys(("sched_setaffinity", "setrlimit"), "limits the resources of imports"),
    **dict.fromkeys(("install_import_hook", "beartype_all", "beartype_packages"), "hooks into imports"),
    **dict.fromkeys(("exec", "run_path", "run_module", "spec_from_file_location"), "runs code from elsewhere"),
}
"""Effect of a call of a function of that name, whichever module defines it."""

_RUNNERS = frozenset(
    [
        "coverage",
        "debugpy",
        "ipykernel",
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
"""Installed programs that run the user's programs, which their own source does not name."""

_BY_NAME = ("import_module", "__import__")
_ENVIRONMENTS = ("environ", "environb")
_HOOKS = ("meta_path", "path_hooks", "path_importer_cache")
_READS = ("get", "items", "keys", "values", "copy", "index", "count")
_READERS = ("dict", "len", "list", "print", "repr", "sorted", "str")
_SOURCES = (".py",)


def refusal(command: Command, cwd: str, loaded: Collection[str]) -> str:
    """Return why a program must have a fresh process; empty if it need not.

    Args:
        command: the program.
        cwd: the working directory of the program.
        loaded: top-level names of the preloaded modules.
    """
    for name in command.packages:
        if name in loaded:
            return f"the helper has already imported {name}, so its jits cannot be routed to the daemon"
    started = command.name.partition(".")[0] if command.is_module else os.path.basename(command.name)
    if started.lower() in _RUNNERS:
        return f"{command.name} runs code from elsewhere"
    directories = [directory for directory in sys.path if not is_installed_path(os.path.join(directory, "module.py"))]
    own = directory_of(command, cwd)
    if not sys.flags.safe_path:
        directories.insert(0, own)
        hidden = _shadowed(own, loaded)
        if hidden:
            return f"{hidden} has the name of a module that the helper has already imported"
    first = _of_module(command.name, directories) if command.is_module else [os.path.join(cwd, command.name)]
    if not first:
        return f"the source of {command.name} cannot be found"
    return _first_problem(first, directories, loaded)


def directory_of(command: Command, cwd: str) -> str:
    """Return the directory in which the imports of a program look first."""
    return cwd if command.is_module else os.path.dirname(os.path.realpath(os.path.join(cwd, command.name)))


def _first_problem(first: Iterable[str], directories: Sequence[str], loaded: Collection[str]) -> str:
    left, seen = list(first), set[str]()
    while left:
        file = left.pop()
        if file in seen:
            continue
        seen.add(file)
        try:
            with open(file, "rb") as source:
                tree = ast.parse(source.read())
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
            return f"{file} cannot be read as Python source"
        for line, problem in _problems(tree):
            return f"{file}:{line} {problem}"
        for name, base in _imports(tree, os.path.dirname(file)):
            if name.partition(".")[0] == "pytest" and not base:
                return f"{file} imports pytest, which hooks into imports"
            left += _found(name, [base] if base else [*directories, *_other_directories(name, loaded)])
    return ""


def _problems(tree: ast.AST) -> Iterator[tuple[int, str]]:
    systems = {"sys"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            systems |= {alias.asname for alias in node.names if alias.name == "sys" and alias.asname}
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                renamed = alias.name in _ENVIRONMENTS and alias.asname not in (None, alias.name)
                if renamed or (node.module == "sys" and alias.name in ("path", "modules", "*")):
                    yield node.lineno, f"may change {node.module}.{alias.name}"
        elif isinstance(node, ast.Constant) and node.value in (*_ENVIRONMENTS, *_HOOKS):
            yield node.lineno, f"may change {node.value}"
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
        if not name:
            continue
        assert isinstance(node, ast.Name | ast.Attribute)
        parent = parents[node]
        of_sys = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in systems
        if name in _CALLS and not isinstance(node.ctx, ast.Store):
            yield node.lineno, _CALLS[name]
        elif name in _BY_NAME and not _has_constant(node, parent):
            yield node.lineno, "imports a module whose name is not in the source"
        elif name in _ENVIRONMENTS and not _is_read(node, parent, parents):
            yield node.lineno, "may set environment variables"
        elif of_sys and name in ("path", "modules") and not _is_read(node, parent, parents):
            yield node.lineno, f"may change sys.{name}"
        elif name in _HOOKS:
            yield node.lineno, "hooks into imports"


def _has_constant(node: ast.expr, parent: ast.AST) -> bool:
    """Return whether a name is called with constant arguments only."""
    called = isinstance(parent, ast.Call) and parent.func is node
    return called and all(isinstance(one, ast.Constant) for one in [*parent.args, *parent.keywords])  # type: ignore[attr-defined]


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


def _imports(tree: ast.AST, directory: str) -> Iterator[tuple[str, str]]:
    """Yield dotted names of imported modules, each with the directory that it is relative to, or ""."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = directory
            for _ in range(node.level - 1):
                base = os.path.dirname(base)
            prefix = f"{node.module}." if node.module else ""
            yield from ((prefix + alias.name, base if node.level else "") for alias in node.names)
        elif isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in _BY_NAME and node.args and isinstance(node.args[0], ast.Constant):
                yield str(node.args[0].value).lstrip("."), directory if str(node.args[0].value)[:1] == "." else ""


def _found(name: str, directories: Iterable[str]) -> list[str]:
    """Return the source files of a module and of the packages above it, in each of the directories."""
    parts, found = name.split("."), []
    for directory in directories:
        for part in parts:
            inner = os.path.join(directory, part)
            found += [path for path in (f"{inner}.py", os.path.join(inner, "__init__.py")) if os.path.isfile(path)]
            directory = inner
            if not os.path.isdir(directory):
                break
    return found


def _other_directories(name: str, loaded: Collection[str]) -> list[str]:
    """Return the directory of a user's package outside `sys.path`, such as an editable installation."""
    top = name.partition(".")[0]
    if top in loaded or top in sys.stdlib_module_names:
        return []
    spec = find_source(top)
    if spec is None or not spec.has_location or spec.origin is None or is_installed_path(spec.origin):
        return []
    is_package = spec.submodule_search_locations is not None
    return [os.path.dirname(os.path.dirname(spec.origin) if is_package else spec.origin)]


def _of_module(name: str, directories: Sequence[str]) -> list[str]:
    """Return the files that `python -m name` runs."""
    own = _found(name, directories) + _found(f"{name}.__main__", directories)
    if own:
        return own
    found = [spec.origin for one in (name, f"{name}.__main__") if (spec := find_source(one)) and spec.origin]
    return [path for path in found if path.endswith(_SOURCES)]


def _shadowed(directory: str, loaded: Collection[str]) -> str:
    """Return the path in a directory that hides a preloaded module; empty if there is none."""
    suffixes = tuple(importlib.machinery.all_suffixes())
    try:
        entries = list(os.scandir(directory))
    except OSError:
        return ""
    for entry in entries:
        name = entry.name.partition(".")[0]
        if name in loaded:
            is_module = entry.name.endswith(suffixes)
            if is_module or any(os.path.exists(os.path.join(entry.path, f"__init__{one}")) for one in suffixes):
                return entry.path
    return ""
