"""The table of docs/architecture.md says what is true: rooms, who uses whom, and that no arrow runs in a circle."""

import ast
import functools
import graphlib
import importlib
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

TOP = Path(__file__).parents[1]
PACKAGES = {"jitclient": TOP / "client" / "jitclient", "jitserver": TOP / "jitserver"}
PLUGIN = "pytest_jitserver"

RECURSIONS = {
    ("jitclient.calls.remote_function", "jitclient.calls.general_path"): (
        "an operation on an array is a call, and what a call returns are arrays; what calls need is loaded with the "
        "first of them"
    ),
}
"""The arrows that may close a circle, each with its reason."""

NAMED_BY_OTHERS = {
    "jitclient.capture.describe.namespaces": "a submodule of a package in a captured namespace",
    "jitclient.capture.steps.make_values": "the module of a value that a capture makes afresh",
    "jitclient.jaxside.internals": "what is not public in jax, by its path",
    "jitclient.jaxside.ffi": "the package of a foreign function, which the client names",
    "jitserver.run.import_watch": "what past runs have imported",
    "jitserver.run.imports": "the same",
    "jitclient.pools.engine": "the engine of a pool",
    "jitserver.programs.prewarm": "the packages of a program, which its client names",
    "jitclient.capture.steps.sandbox": "what captured code imports",
    "jitclient.capture.user_code.names": "the value of an installed package that a capture names",
    "jitclient.capture.manifest.places": "the module of a package whose state a trace elsewhere read",
    "jitclient.capture.codec.values": "the module of a value that was sent by name",
}
"""The modules that import what no table of theirs names, and what that is."""

REPLACES = {
    "jitclient.jaxside.backend_view": "what a client's trace asks jax of its devices",
    "jitclient.jaxside.internals": "functions of jax, and the tables in which it finds what to do with our arrays",
    "jitclient.core.compat": "where a debugger looks for an exception that a program did not catch",
    "jitclient.api.run_as_main": "what a program finds in `sys`, and what an exception leaves there",
    "jitclient.session.launch": "a variable for the program that the process becomes",
    "jitserver.daemon.address_lock": "the same",
    "pytest_jitserver": "a variable for the processes that tests start",
    "jitserver.run.child": "what a process has of its own, in one that was forked",
    "jitserver.run.import_watch": "how imports read files and variables, and import others, in an audit",
    "jitserver.run.additions": "the finders and filters that the imports of a program add",
    "jitserver.run.preloaded": "the modules that a program has imported, and the variables that their imports set",
    "jitserver.run.user_program": "the words that started the process",
    "jitserver.system.process_title": "a variable that setproctitle reads when it is imported",
    "jitserver.programs.traces.stand_ins": "what a process must know of what its traces read, print and warn of",
}
"""The modules that set globals of other modules, and which. The daemon has one place for that."""


@functools.cache
def modules() -> dict[str, Path]:
    found = {PLUGIN: TOP / "client" / f"{PLUGIN}.py"}
    for package, folder in PACKAGES.items():
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            found[".".join((package, *(part for part in parts if part != "__init__")))] = path
    return found


def imports_of(name: str, path: Path, known: dict[str, Path]) -> set[str]:
    """The modules of ours that a module imports: at its top, inside its functions, and by the lazy names of a table."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found = set()
    for node in code_of(path):
        if is_lazy_import(node):
            found |= lazily_imported(name, node)
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *filter(None, [base])])
            found |= {f"{base}.{alias.name}" if f"{base}.{alias.name}" in known else base for alias in node.names}
    return {module for module in found if module in known and module != name}


@functools.cache
def code_of(path: Path) -> tuple[ast.AST, ...]:
    """The nodes of a module, those for type checkers alone aside."""
    tree = ast.parse(path.read_text())
    hints = [node for node in ast.walk(tree) if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    skipped = {id(inner) for hint in hints for statement in hint.body for inner in ast.walk(statement)}
    return tuple(node for node in ast.walk(tree) if id(node) not in skipped)


def is_lazy_import(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__"))


def lazily_imported(module: str, call: Any) -> set[str]:
    """Return the possible imports of a call of `import_module`: `f"{__name__}.{TABLE[name]}"` is all of the table."""
    argument = ast.unparse(call.args[0])
    tables = re.findall(r"\{(\w+)\[\w+\]\}", argument)
    if not tables:
        assert isinstance(call.args[0], ast.Constant) or module in NAMED_BY_OTHERS, f"{module} imports {argument}"
        return {call.args[0].value} if isinstance(call.args[0], ast.Constant) else set()
    names = vars(importlib.import_module(module))
    found = {f"{module}.{home}" for table in tables for home in names[table].values()}
    assert found <= modules().keys(), f"{module} has lazy names of {found - modules().keys()}"
    return found


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
    graphlib.TopologicalSorter(arrows(RECURSIONS)).prepare()


@pytest.mark.parametrize("recursion", RECURSIONS, ids=" -> ".join)
def test_each_recursion_is_one(recursion: tuple[str, str]) -> None:
    with pytest.raises(graphlib.CycleError):
        graphlib.TopologicalSorter(arrows(RECURSIONS.keys() - {recursion})).prepare()


def arrows(without: Collection[tuple[str, str]]) -> dict[str, set[str]]:
    known = modules()
    return {
        module: {used for used in imports_of(module, path, known) if (module, used) not in without}
        for module, path in known.items()
    }


def test_lazy_names_are_arrows() -> None:
    known = modules()
    for module, used in (("jitclient", "jitclient.session.process"), ("jitserver.cli", "jitserver.cli.lifecycle")):
        assert used in imports_of(module, known[module], known)


@pytest.mark.parametrize("module", NAMED_BY_OTHERS)
def test_what_imports_by_foreign_names_does(module: str) -> None:
    assert any(is_lazy_import(node) for node in code_of(modules()[module]))


def test_no_module_sets_the_globals_of_another() -> None:
    found = {module: settings_elsewhere(module) for module in modules()}
    assert {module for module, settings in found.items() if settings} == set(REPLACES), found


def settings_elsewhere(module: str) -> list[str]:
    """Return the assignments and deletions of a module in the modules that it imports."""
    nodes = code_of(modules()[module])
    imported = {
        (alias.asname or alias.name).partition(".")[0]
        for node in nodes
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    }
    found = [
        ast.unparse(node)
        for node in nodes
        if isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.ctx, (ast.Store, ast.Del))
        if re.split(r"[.\[]", ast.unparse(node))[0] in imported
    ]
    if module.startswith("jitserver."):
        calls = [ast.unparse(node) for node in nodes if isinstance(node, ast.Call)]
        found += [call for call in calls if call.startswith(("setattr(", "delattr(")) and "(self, " not in call]
    return found


def test_one_module_makes_digests() -> None:
    imported = {module for module, path in modules().items() if "import hashlib" in path.read_text()}
    assert imported == {"jitclient.core.digests"}


def test_one_module_of_the_client_has_the_clock() -> None:
    """Others would ask the clock that a program has put in its place."""
    asks = re.compile(r"^\s*from time import |\btime\.(monotonic|perf_counter|sleep|thread_time|time)\(", re.MULTILINE)
    client = PACKAGES["jitclient"]
    found = {path.relative_to(client).as_posix() for path in client.rglob("*.py") if asks.search(path.read_text())}
    # The second one sets the clock of log records, before a program begins.
    assert found == {"core/clock.py", "core/compat.py"}


def test_snapshots_of_shared_dictionaries_are_one_step() -> None:
    """Python 3.11 may collect garbage in `list(each.names.items())`, and in `each.names.copy()` of few items in a large
    dictionary, and then another thread changes the dictionary. It does not in `dict(each.names)`. Local names are left
    out, as most are of one thread.
    """
    found = {
        f"{module}: {ast.unparse(node)}"
        for module, path in modules().items()
        for node in ast.walk(ast.parse(path.read_text()))
        for given in taken_whole(node)
        if isinstance(given, ast.Call) and isinstance(given.func, ast.Attribute) and given.func.attr == "items"
        if re.match(r"(?!os\.)\w+\.[\w.]+$|(vars|fields_of)\(", ast.unparse(given.func.value))
    }
    assert found == set()


def taken_whole(node: ast.AST) -> list[ast.expr]:
    """Return the iterables that a call or a star takes whole."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("list", "sorted", "tuple"):
        return node.args
    return [node.value] if isinstance(node, ast.Starred) else []


def test_one_module_uses_what_is_not_public_in_jax() -> None:
    found = {module for module, path in modules().items() if any(map(uses_internals, code_of(path)))}
    assert found == {
        "jitclient.jaxside.internals",
        "jitclient.jaxside.compiler",  # the hook in jax's compiler
        "jitclient.capture.user_code.registry",  # looks in a table of jax: the codec uses no local jax
    }


def uses_internals(node: ast.AST) -> bool:
    """Whether it imports from `jax._src`, reads that off jax, or asks for a module of it by name."""
    text = ast.unparse(node)
    is_use = isinstance(node, (ast.Import, ast.ImportFrom, ast.Attribute, ast.Subscript)) or is_lazy_import(node)
    return bool(re.search(r"\bjax(\._src| import _src)\b", text)) and (is_use or text.startswith("sys.modules"))


BRANCHES_ON_VERSIONS = {"jitclient.core.compat", "jitclient.jaxside.internals"}
"""Of Python, and of jax."""

CONDITION = re.compile(r"\b(since|before|until|from|in|of) (jax|python) \d|\b(jax|python) \d\S* (and|or) \w+er\b", re.I)
"""How a text says that something is so in some versions."""


def test_two_modules_have_the_differences_between_versions() -> None:
    found = {
        module
        for module, path in modules().items()
        if CONDITION.search(path.read_text()) or any(map(compares_versions, code_of(path)))
    }
    assert found == BRANCHES_ON_VERSIONS


def compares_versions(node: ast.AST) -> bool:
    """Whether it reads the version of Python as a number, or compares the text of jax's."""
    if isinstance(node, ast.Attribute):
        return node.attr in ("version_info", "hexversion")
    return isinstance(node, ast.Compare) and "jax.__version" in ast.unparse(node)


@pytest.mark.parametrize(
    "text",
    [
        "import sys; NEW = sys.version_info >= (3, 12)",
        "import jax; OLD = jax.__version__ < '0.12'",
        "f = 1  # new in Python 3.12",
        "# Before jax 0.12, there is no f",
        "# Python 3.12 and later have f",
    ],
)
def test_a_branch_on_a_version_is_seen(text: str) -> None:
    assert CONDITION.search(text) or any(map(compares_versions, ast.walk(ast.parse(text))))


NEEDS_JAX = (
    "jitserver.programs.devices",
    "jitserver.programs",
    "jitserver.cli.demos",
    "jitclient.eqx",
    "jitclient.nnx",
)


def test_only_the_engine_and_what_serves_a_library_of_jax_import_jax_at_their_top() -> None:
    for module, path in modules().items():
        top = [node for node in ast.parse(path.read_text()).body if isinstance(node, (ast.Import, ast.ImportFrom))]
        names = {alias.name for node in top if isinstance(node, ast.Import) for alias in node.names}
        names |= {node.module or "" for node in top if isinstance(node, ast.ImportFrom)}
        if any(name.partition(".")[0] in ("jax", "jaxlib") for name in names):
            assert module.startswith(NEEDS_JAX), f"{module} imports jax"
