"""Which programs a helper does not take, as their source says."""

import textwrap
from pathlib import Path

import pytest

from jitserver.run import scan
from jitserver.run.request import Command

LOADED = {"numpy", "jax", "json"}

CHANGES = [
    "os.environ['JAX_ENABLE_X64'] = '1'",
    "os.environ.update(A='1')",
    "os.environ.setdefault('A', '1')",
    "del os.environ['A']",
    "os.environ |= {'A': '1'}",
    "os.putenv('A', '1')",
    "from os import environ\nenviron['A'] = '1'",
    "from os import environ as variables\nvariables['A'] = '1'",
    "variables = os.environ\nvariables['A'] = '1'",
    "change(os.environ)",
    "setattr(os, 'environ', {})",
    "sys.path.insert(0, 'lib')",
    "sys.path += ['lib']",
    "sys.path[:0] = ['lib']",
    "from sys import path\npath.append('lib')",
    "import sys as system\nsystem.path.append('lib')",
    "sys.modules['numpy'] = None",
    "sys.meta_path.insert(0, finder)",
    "sys.path_hooks.clear()",
    "warnings.filterwarnings('ignore')",
    "from warnings import simplefilter\nsimplefilter('error')",
    "with warnings.catch_warnings():\n    import numpy",
    "builtins.__import__ = mine",
    "importlib.import_module(name)",
    "__import__(name)",
    "exec(open('settings.py').read())",
    "runpy.run_path('other.py')",
    "install_import_hook('model', 'beartype.beartype')",
    "sys.addaudithook(print)",
    "logging.setLoggerClass(Mine)",
    "def main():\n    os.environ['A'] = '1'",
]
READS = [
    "print(os.environ['HOME'], os.environ.get('A'), 'A' in os.environ, os.getenv('A'))",
    "subprocess.run(['ls'], env={**os.environ, 'A': '1'})",
    "variables = dict(os.environ)\nvariables['A'] = '1'",
    "variables = os.environ.copy()",
    "for name in os.environ: print(name)",
    "print(sys.path, 'x' in sys.path, sys.path[0], len(sys.path))",
    "if 'jax' in sys.modules: print(sys.modules['jax'])",
    "importlib.import_module('json.decoder')",
    "path = os.path.join('a', 'b')\npath.append(1)",
    "x = 'os.environ'  # os.environ['A'] = 1",
    "warnings.warn('careful')",
]


def refusal(folder: Path, source: str, name: str = "script.py") -> str:
    (folder / name).write_text(textwrap.dedent(source))
    return scan.refusal(Command(name, False, []), str(folder), LOADED)


@pytest.mark.parametrize("source", CHANGES)
def test_what_may_change_imports_is_refused(source: str, tmp_path: Path) -> None:
    assert "script.py:" in refusal(tmp_path, f"import numpy\n{source}")


@pytest.mark.parametrize("source", READS)
def test_what_only_reads_is_not(source: str, tmp_path: Path) -> None:
    assert refusal(tmp_path, f"import os, sys, warnings, json\n{source}") == ""


@pytest.mark.parametrize("name", ["pytest", "coverage.__main__", "IPython"])
def test_what_runs_programs_that_it_does_not_name_is_refused(name: str, tmp_path: Path) -> None:
    assert scan.refusal(Command(name, True, []), str(tmp_path), LOADED) == f"{name} runs code from elsewhere"
    script = f"/usr/bin/{name.partition('.')[0]}"
    assert scan.refusal(Command(script, False, []), str(tmp_path), LOADED) == f"{script} runs code from elsewhere"


@pytest.mark.parametrize("source", ["import pytest\npytest.main()", "from pytest import main\nmain()"])
def test_what_rewrites_imports_is_refused(source: str, tmp_path: Path) -> None:
    assert "imports pytest, which hooks into imports" in refusal(tmp_path, source)


IMPORTS = {
    "import helper": "helper.py",
    "from helper import x": "helper.py",
    "import package.inner": "package/inner.py",
    "import package.inner as it": "package/__init__.py",
    "from package import inner": "package/inner.py",
    "from package.inner import x": "package/inner.py",
    "def later():\n    import helper": "helper.py",
    "import importlib\nimportlib.import_module('helper')": "helper.py",
    "import spaced.inner": "spaced/inner.py",
}


@pytest.mark.parametrize("source", IMPORTS)
def test_modules_of_the_user_are_read_too(source: str, tmp_path: Path) -> None:
    files = {"helper.py": "", "package/__init__.py": "", "package/inner.py": "", "spaced/inner.py": ""}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert refusal(tmp_path, source) == ""
    (tmp_path / IMPORTS[source]).write_text("import os\nos.environ['A'] = '1'")
    assert f"{IMPORTS[source]}:2 may set environment variables" in refusal(tmp_path, source)


@pytest.mark.parametrize("source", ["from . import other", "from .other import x", "from ..package.other import x"])
def test_relative_imports_are_followed(source: str, tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "package" / "first.py").write_text(source)
    (tmp_path / "package" / "other.py").write_text("import sys\nsys.path.append('lib')")
    assert "other.py:2 may change sys.path" in refusal(tmp_path, "import package.first")


def test_imports_in_a_circle_end(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("import other")
    (tmp_path / "other.py").write_text("import one")
    assert refusal(tmp_path, "import one") == ""


@pytest.mark.parametrize("name", ["json.py", "numpy/__init__.py", "jax.cpython-311-x86_64-linux-gnu.so"])
def test_a_file_that_hides_an_imported_module_is_noticed(name: str, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("")
    assert "has the name of a module that the helper has already imported" in refusal(tmp_path, "print()")


@pytest.mark.parametrize("name", ["other.py", "json.txt", "numpy/notes.py"])
def test_a_file_that_hides_none_is_not(name: str, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("")
    assert refusal(tmp_path, "print()") == ""


def test_a_package_whose_jits_are_ours_must_not_be_there_yet(tmp_path: Path) -> None:
    (tmp_path / "script.py").touch()
    for name, says in {"numpy": "has already imported", "numpyro": ""}.items():
        found = scan.refusal(Command("script.py", False, [], packages=(name,)), str(tmp_path), LOADED)
        assert (says in found) if says else found == ""


@pytest.mark.parametrize("source", ["def", "\0", "é".encode("latin-1").decode("latin-1") + " = ="])
def test_what_is_no_source_is_left_to_python(source: str, tmp_path: Path) -> None:
    assert "cannot be read as Python source" in refusal(tmp_path, source)


def test_what_is_missing_is_left_to_python(tmp_path: Path) -> None:
    assert scan.refusal(Command("none.py", False, []), str(tmp_path), LOADED)
    assert scan.refusal(Command("no_such_module", True, []), str(tmp_path), LOADED)


def test_a_module_is_looked_for_in_the_working_folder(tmp_path: Path) -> None:
    (tmp_path / "tool").mkdir()
    (tmp_path / "tool" / "__init__.py").write_text("")
    main = tmp_path / "tool" / "__main__.py"
    main.write_text("import json")
    assert scan.refusal(Command("tool", True, []), str(tmp_path), LOADED) == ""
    main.write_text("import os; os.environ['A'] = '1'")
    assert "__main__.py:1 may set environment variables" in scan.refusal(
        Command("tool", True, []), str(tmp_path), LOADED
    )
