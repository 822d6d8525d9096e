"""Changes since modules were imported, or while they were, are noticed."""

import importlib
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

from jitserver.run.import_audit import ImportAudit


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which imports look, with a module that is a minute old."""
    (tmp_path / "looked_at.py").write_text("")
    for path in (tmp_path / "looked_at.py", tmp_path):
        os.utime(path, (path.stat().st_mtime - 60,) * 2)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    monkeypatch.delitem(sys.modules, "looked_at", raising=False)  # that of another test
    return tmp_path


def test_nothing_has_changed(site: Path) -> None:
    audit = ImportAudit(terminal=False)
    for _ in range(2):
        with audit:
            importlib.import_module("looked_at")
    assert audit.changed() == ""


def test_what_is_installed_during_imports_is_a_change(site: Path) -> None:
    audit = ImportAudit(terminal=False)
    with audit:
        (site / "another-2.dist-info").mkdir()
    assert audit.changed() == f"{site} has changed since it was imported"


def test_what_changed_before_further_imports_is_a_change(site: Path) -> None:
    audit = ImportAudit(terminal=False)
    with audit:
        importlib.import_module("looked_at")
    (site / "looked_at.py").write_text("VERSION = 2")
    with audit:
        pass
    assert audit.changed() == f"{site / 'looked_at.py'} has changed since it was imported"


def test_another_version_of_the_same_size_and_time_is_a_change(site: Path) -> None:
    file = site / "looked_at.py"
    file.write_text("VERSION = 1")
    os.utime(file, (1, 1))
    audit = ImportAudit(terminal=False)
    with audit:
        importlib.import_module("looked_at")
    file.write_text("VERSION = 2")
    os.utime(file, (1, 1))
    assert audit.changed() == f"{file} has changed since it was imported"


@pytest.mark.parametrize(
    "look", ["os.path.exists(path)", "pathlib.Path(path).exists()", "os.path.isdir(path)", "os.listdir(folder)"]
)
def test_what_comes_where_imports_looked_is_a_change(look: str, site: Path) -> None:
    (site / "looked_at.py").write_text(
        f"import os, pathlib\nfolder = {str(site / 'settings')!r}\npath = folder + '/rc'\n{look}\n"
    )
    (site / "settings").mkdir()
    audit = ImportAudit(terminal=False)
    with audit:
        importlib.import_module("looked_at")
    assert audit.changed() == ""
    (site / "settings" / "rc").mkdir()
    assert audit.changed().startswith(str(site / "settings"))


def test_a_path_of_the_working_folder_for_which_imports_looked(site: Path) -> None:
    (site / "looked_at.py").write_text("import pathlib\npathlib.Path('rc').exists()\n")
    audit = ImportAudit(terminal=False)
    with audit:
        importlib.import_module("looked_at")
    assert audit.finds_other_files(str(site)) == ""
    (site / "rc").write_text("")
    assert audit.finds_other_files(str(site)) == "rc"


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
    own, audit = sys.argv, ImportAudit(terminal=False)
    with audit:
        found = importlib.import_module("looked_at")
    assert audit.has_read == "the arguments of the program"
    assert found.VALUE is (own[0] if read == "a word" else own)
    assert sys.argv is own


def test_what_an_import_sees_of_sys_while_its_arguments_are_watched(site: Path) -> None:
    (site / "looked_at.py").write_text(
        """
import sys
IS_MODULE = type(sys) is type(sys.modules["importlib"])
try:
    sys.absent
except AttributeError as error:
    absent = str(error), error.name, error.obj
"""
    )
    audit = ImportAudit(terminal=False)
    with audit:
        found = importlib.import_module("looked_at")
    assert type(found) is ModuleType  # Python makes each module with `type(sys)`
    assert found.IS_MODULE
    assert found.absent == ("module 'sys' has no attribute 'absent'", "absent", sys)
    assert not audit.has_read
    assert not hasattr(sys, "__getattr__")


def test_an_import_may_set_the_arguments(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (site / "looked_at.py").write_text("import sys\nsys.argv = ['set']\n")
    monkeypatch.setattr(sys, "argv", [])
    audit = ImportAudit(terminal=False)
    with audit:
        importlib.import_module("looked_at")
    assert sys.argv == ["set"]  # noted as a change of the state of the process


def test_arguments_that_are_not_read_are_not_noted(site: Path) -> None:
    (site / "looked_at.py").write_text("import sys\ndef main(): return sys.argv\n")
    audit = ImportAudit(terminal=False)
    with audit:
        importlib.import_module("looked_at")
    assert audit.has_read == ""


@pytest.mark.parametrize(
    "ask", ["sys.stdout.isatty()", "sys.stdin.isatty()", "os.isatty(2)", "shutil.get_terminal_size()"]
)
def test_the_modules_that_ask_about_a_terminal_are_noted(ask: str, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
    (site / "looked_at.py").write_text(f"import os, shutil, sys\ndef ask(): return {ask}\n")
    (site / "asks.py").write_text("import looked_at\nlooked_at.ask()\n")
    monkeypatch.delitem(sys.modules, "asks", raising=False)
    audit = ImportAudit(terminal=False)

    def differs(modules: set[str]) -> str:
        """What would differ on a terminal."""
        with monkeypatch.context() as context:
            context.setattr(os, "isatty", lambda _: True)
            return audit.differs_in_terminals(modules)

    with audit:
        importlib.import_module("looked_at")
        assert not differs({"looked_at"})
        importlib.import_module("asks")
    assert "isatty" not in vars(sys.stdout)
    assert differs({"asks"})
    assert not differs({"pytest"})


def test_files_of_the_system_have_no_times(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (site / "looked_at.py").write_text("import os\nopen('/proc/self/status').close()\nos.listdir('/proc/self/fd')\n")
    audit = ImportAudit(terminal=False)
    with audit:
        importlib.import_module("looked_at")
    assert not any(path.startswith("/proc/") for path in audit._files)


def test_files_that_imports_make_are_no_input(site: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("made")
    made = folder / "made"
    lines = f"with tempfile.NamedTemporaryFile(dir={str(folder)!r}):", f"    open({str(made)!r}, 'w').close()"
    (site / "looked_at.py").write_text("\n".join(["import tempfile", *lines]))
    with ImportAudit(terminal=False) as audit:
        importlib.import_module("looked_at")
    made.write_text("more")
    (folder / "another").touch()
    assert audit.changed() == ""
