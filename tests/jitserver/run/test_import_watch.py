"""A watch sees the inputs of imports, in a process of its own; a verdict notices changes since then."""

import importlib.machinery
import importlib.util
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jitserver.run.verdict import Verdict

WATCH = """
import json, os, sys
import msgspec
from jitserver.run.import_watch import ImportWatch

sys.path.insert(0, sys.argv[1])
watch = ImportWatch(terminal=bool(os.environ.get("TERMINAL")))
problems = {}
for name in sys.argv[3:]:
    watch.observe(name)
    problems[name] = watch.problem
sys.__stdout__.buffer.write(msgspec.json.encode([problems, watch.verdict, eval(sys.argv[2])]))
"""


class Watched:
    """Result of a watch."""

    def __init__(self, problems: dict[str, str], verdict: Verdict, shown: Any) -> None:
        self.problems, self.verdict, self.shown = problems, verdict, shown


def watched(site: Path, *names: str, show: str = "None", **options: Any) -> Watched:
    """Has a process import some modules; returns what a watch has found, and the value of an expression then."""
    command = [sys.executable, "-B", "-c", WATCH, str(site), show, *names]
    done = subprocess.run(command, capture_output=True, check=False, timeout=60, stdin=subprocess.DEVNULL, **options)
    assert done.returncode == 0, done.stderr.decode()
    found: tuple[dict[str, str], Verdict, Any] = msgspec.json.decode(
        done.stdout, type=tuple[dict[str, str], Verdict, Any]
    )
    return Watched(*found)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder in which imports look, with a module that is a minute old."""
    (tmp_path / "looked_at.py").write_text("")
    for path in (tmp_path / "looked_at.py", tmp_path):
        os.utime(path, (path.stat().st_mtime - 60,) * 2)
    return tmp_path


# ---- files


def test_nothing_has_changed(site: Path) -> None:
    assert watched(site, "looked_at").verdict.changed() == ""


def test_what_is_installed_is_a_change(site: Path) -> None:
    found = watched(site, "looked_at").verdict
    (site / "another-2.dist-info").mkdir()
    assert found.changed() == f"{site} has changed since it was imported"


def test_what_changes_before_further_imports_is_a_change(site: Path) -> None:
    file = site / "looked_at.py"
    (site / "edits.py").write_text(f"from pathlib import Path; Path({str(file)!r}).write_text('VERSION = 2')")
    assert watched(site, "looked_at", "edits").verdict.changed() == f"{file} has changed since it was imported"


def test_another_version_of_the_same_size_and_time_is_a_change(site: Path) -> None:
    file = site / "looked_at.py"
    file.write_text("VERSION = 1")
    os.utime(file, (1, 1))
    found = watched(site, "looked_at").verdict
    file.write_text("VERSION = 2")
    os.utime(file, (1, 1))
    assert found.changed() == f"{file} has changed since it was imported"


@pytest.mark.parametrize(
    "look", ["os.path.exists(path)", "pathlib.Path(path).exists()", "os.path.isdir(path)", "os.listdir(folder)"]
)
def test_what_comes_where_imports_looked_is_a_change(look: str, site: Path) -> None:
    (site / "looked_at.py").write_text(
        f"import os, pathlib\nfolder = {str(site / 'settings')!r}\npath = folder + '/rc'\n{look}\n"
    )
    (site / "settings").mkdir()
    found = watched(site, "looked_at").verdict
    assert found.changed() == ""
    (site / "settings" / "rc").mkdir()
    assert found.changed().startswith(str(site / "settings"))


@pytest.mark.parametrize("read", ["pkgutil.get_data('looked_at', 'rc')", "os.close(os.open(path, os.O_RDONLY))"])
def test_what_imports_read_without_open_is_a_change(read: str, site: Path) -> None:
    (site / "looked_at.py").write_text(f"import os, pkgutil\npath = {str(site / 'rc')!r}\n{read}\n")
    (site / "rc").write_text("1")
    found = watched(site, "looked_at").verdict
    assert found.changed() == ""
    (site / "rc").write_text("22")
    assert found.changed() == f"{site / 'rc'} has changed since it was imported"


def test_a_path_of_the_working_folder_for_which_imports_looked(site: Path) -> None:
    (site / "looked_at.py").write_text("import pathlib\npathlib.Path('rc').exists()\n")
    found = watched(site, "looked_at").verdict
    assert found.finds_other_files(str(site)) == ""
    (site / "rc").write_text("")
    assert found.finds_other_files(str(site)) == "rc"


def test_files_of_the_system_have_no_times(site: Path) -> None:
    (site / "looked_at.py").write_text("import os\nopen('/proc/self/status').close()\nos.listdir('/proc/self/fd')\n")
    found = watched(site, "looked_at").verdict
    assert found.files
    assert not any(path.startswith("/proc/") for path in found.files)


def test_files_that_imports_make_are_no_input(site: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("made")
    made = folder / "made"
    lines = f"with tempfile.NamedTemporaryFile(dir={str(folder)!r}):", f"    open({str(made)!r}, 'w').close()"
    (site / "looked_at.py").write_text("\n".join(["import tempfile", *lines]))
    found = watched(site, "looked_at").verdict
    made.write_text("more")
    (folder / "another").touch()
    assert found.changed() == ""


# ---- the arguments and the terminal

READS = {
    "a word": "VALUE = sys.argv[0]",
    "a name": "from sys import argv as VALUE",
    "a default": "def main(argv=sys.argv): return argv\nVALUE = main()",
    "an attribute of a class": "class Main: argv = sys.argv\nVALUE = Main.argv",
    "by its text": "VALUE = getattr(sys, 'argv')",
}


@pytest.mark.parametrize("read", READS)
def test_an_import_that_reads_the_arguments_is_noted(read: str, site: Path) -> None:
    (site / "looked_at.py").write_text(f"import sys\n{READS[read]}\n")
    own = "sys.argv[0]" if read == "a word" else "sys.argv"
    found = watched(site, "looked_at", show=f"sys.modules['looked_at'].VALUE is {own}")
    assert found.problems == {"looked_at": "reads the arguments of the program"}
    assert found.shown is True


def test_what_an_import_sees_of_sys_while_its_arguments_are_watched(site: Path) -> None:
    (site / "looked_at.py").write_text(
        """
import sys
def main(): return sys.argv
IS_MODULE = type(sys) is type(sys.modules["importlib"])
try:
    sys.absent
except AttributeError as error:
    absent = [str(error), error.name, error.obj is sys]
"""
    )
    found = watched(site, "looked_at", show="(lambda m: [m.IS_MODULE, *m.absent])(sys.modules['looked_at'])")
    assert found.shown == [True, "module 'sys' has no attribute 'absent'", "absent", True]
    assert found.problems == {"looked_at": ""}


@pytest.mark.parametrize("ask", ["sys.stdout.isatty()", "sys.stdin.isatty()", "os.isatty(2)"])
def test_the_modules_that_ask_about_a_terminal_are_noted(ask: str, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (site / "looked_at.py").write_text(f"import os, sys\ndef ask(): return {ask}\n")
    (site / "asks.py").write_text("import looked_at\nlooked_at.ask()\n")
    monkeypatch.setattr(os, "isatty", lambda _: True)
    assert not watched(site, "looked_at").verdict.differs_in_terminals({"looked_at"}, False)
    found = watched(site, "looked_at", "asks").verdict
    assert found.differs_in_terminals({"asks"}, False)
    assert not found.differs_in_terminals({"pytest"}, False)


def test_the_size_of_a_terminal_is_that_of_the_run(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
    (site / "looked_at.py").write_text("import shutil; shutil.get_terminal_size()\n")
    on_terminal = watched(site, "looked_at", env={**os.environ, "TERMINAL": "1"})
    assert on_terminal.problems == {"looked_at": "asks how large the terminal is"}
    without = watched(site, "looked_at", env={**os.environ})
    assert without.problems == {"looked_at": ""}
    assert without.verdict.differs_in_terminals({"looked_at"}, True)  # where standard output is one


# ---- variables


def test_a_package_that_looks_for_a_prefix_can_be_imported_in_advance(site: Path) -> None:
    pytest.importorskip("tqdm")
    found = watched(site, "tqdm")
    assert found.problems == {"tqdm": ""}
    assert found.verdict.differs({"TQDM_ASCII": "1"}) == "TQDM_ASCII"


def test_all_variables_are_as_before_for_the_next_import(site: Path) -> None:
    (site / "sets.py").write_text(
        "import os; os.environ['SET'] = 'x'; os.environ.pop('GIVEN'); os.environ['PATH'] += ':'"
    )
    found = watched(site, "sets", show="dict(os.environ)", env={**os.environ, "GIVEN": "1"})
    assert found.shown["GIVEN"] == "1"
    assert "SET" not in found.shown
    assert found.shown["PATH"] == os.environ["PATH"]
    written, problem = found.verdict.replay({"sets"}, {**found.shown})
    assert (written, problem) == ({"SET": "x", "GIVEN": None, "PATH": os.environ["PATH"] + ":"}, "")
    assert found.verdict.replay({"sets"}, {**found.shown, "PATH": "/other"})[1] == "PATH"
    assert found.verdict.differs({**found.shown, "PATH": "/other"}) == "PATH"


# ---- which modules import which


def closure(site: Path, *names: str) -> list[str]:
    """Returns all that is imported for the last of some modules."""
    return watched(site, *names).verdict.closure(names[-1])


def test_a_module_of_native_code_imports_others(site: Path) -> None:
    spec = importlib.util.find_spec("_elementtree")
    if spec is None or not str(spec.origin).endswith(tuple(importlib.machinery.EXTENSION_SUFFIXES)):
        pytest.skip("this Python has no file for the module")
    assert "copy" in closure(site, "_elementtree")


def test_a_module_of_native_code_imports_what_is_there_already(site: Path) -> None:
    assert "secrets" in closure(site, "secrets", "numpy.random.bit_generator")


def test_a_part_that_a_package_loads_for_all_its_names(site: Path) -> None:
    (site / "lazy").mkdir()
    (site / "lazy" / "__init__.py").write_text(
        "__all__ = ['part']\ndef __getattr__(name):\n    import lazy.part\n    return lazy.part\n"
    )
    (site / "lazy" / "part.py").touch()
    (site / "star.py").write_text("from lazy import *\n")
    for before in [], ["lazy.part"]:
        assert "lazy.part" in closure(site, *before, "star")
    assert "lazy.part" not in closure(site, "lazy.part", "lazy")


def test_the_order_is_that_of_a_process_that_has_imported_nothing(site: Path) -> None:
    (site / "pack").mkdir()
    files = {
        "pack/__init__.py": "import first\nfrom pack import part",
        "pack/part.py": "import second, pack",
        "pack/late.py": "import third\nimport pack.part",
        "first.py": "import third",
        "second.py": "",
        "third.py": "import first",
    }
    for name, source in files.items():
        (site / name).write_text(source)
    expected = ["third", "first", "second", "pack.part", "pack", "pack.late"]
    for before in [], ["second", "first", "pack"]:
        # Imports load modules of Python as well.
        found = [name for name in closure(site, *before, "pack.late") if name in expected]
        assert found == expected


# ---- filters of warnings and random numbers

FILTERS = {
    "warnings.filterwarnings('ignore', 'ours.*', FutureWarning, 'module', 5)": "",
    "warnings.simplefilter('always', numpy.exceptions.ComplexWarning, append=True)": "",
    "warnings.simplefilter('error')": "",  # for all code: a change of the state of the process
    "warnings.simplefilter('ignore', type('Own', (Warning,), {}))": "adds a filter of warnings of its own class",
    "warnings.filters.append(warnings.filters[0])": "changes warning filters",
}


@pytest.mark.parametrize("source", FILTERS)
def test_filters_can_be_added_again(source: str, site: Path) -> None:
    (site / "looked_at.py").write_text(
        f"import warnings, numpy.exceptions\nbefore = list(warnings.filters)\n{source}\n"
    )
    show = """
        (lambda m, w, there: [
            list(w.filters) == m.before,
            [import_watch.add_filter(each) for each in watch.verdict.filters if each.module == m.__name__],
            [repr(each) for each in w.filters],
        ])(sys.modules["looked_at"], sys.modules["warnings"], 0)
    """
    show = " ".join(textwrap.dedent(show).split()).replace("import_watch", "sys.modules['jitserver.run.additions']")
    found = watched(site, "numpy", "looked_at", show=show)
    assert found.problems["looked_at"] == FILTERS[source]
    if not FILTERS[source]:
        command = f"import sys; sys.path.insert(0, {str(site)!r})\nimport looked_at, warnings, json\n"
        command += "print(json.dumps([repr(each) for each in warnings.filters if each not in looked_at.before]))"
        plain = json.loads(subprocess.check_output([sys.executable, "-B", "-c", command], text=True))
        is_same, added, filters = found.shown
        assert is_same
        assert added == [True]
        assert [each for each in filters if each in plain] == plain


def test_random_numbers_that_all_runs_would_share(site: Path) -> None:
    sources = {
        "seeds": "import random; random.seed(5)",
        "makes": "import random; OWN = random.Random()",
        "makes_seeded": "import random; OWN = random.Random(5)",
        "asks_the_system": "import random; OWN = random.SystemRandom()",
        "names_files": "import tempfile; tempfile.NamedTemporaryFile().close()",
        "draws": "import random; random.random()",
    }
    for name, source in sources.items():
        (site / f"{name}.py").write_text(source)
    assert {name: why for name, why in watched(site, *sources).problems.items() if why} == {
        "seeds": "seeds random numbers",
        "makes": "makes random numbers that would be the same in all runs",
    }
