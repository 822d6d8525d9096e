"""The graph has what each module imports, whether or not others have imported it before."""

import importlib.machinery
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

CLOSURE = """
import copy, importlib, json, sys
from jitserver.run.import_graph import ImportGraph

sys.path.insert(0, sys.argv[1])
graph = ImportGraph(lambda _: None)
with graph:
    for name in sys.argv[2:]:
        importlib.import_module(name)
print(json.dumps(graph.closure(sys.argv[-1])))
"""


def closure(directory: Path, *names: str) -> list[str]:
    """Has a process import some modules; returns all that is imported for the last of them."""
    command = [sys.executable, "-c", CLOSURE, str(directory), *names]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def test_a_module_of_native_code_imports_others() -> None:
    spec = importlib.util.find_spec("_elementtree")
    if spec is None or not str(spec.origin).endswith(tuple(importlib.machinery.EXTENSION_SUFFIXES)):
        pytest.skip("this Python has no file for the module")
    assert "copy" in closure(Path("."), "_elementtree")


def test_a_module_of_native_code_imports_what_is_there_already() -> None:
    assert "secrets" in closure(Path("."), "secrets", "numpy.random.bit_generator")


def test_a_part_that_a_package_loads_for_all_its_names(tmp_path: Path) -> None:
    (tmp_path / "lazy").mkdir()
    (tmp_path / "lazy" / "__init__.py").write_text(
        "__all__ = ['part']\ndef __getattr__(name):\n    import lazy.part\n    return lazy.part\n"
    )
    (tmp_path / "lazy" / "part.py").touch()
    (tmp_path / "star.py").write_text("from lazy import *\n")
    for before in [], ["lazy.part"]:
        assert "lazy.part" in closure(tmp_path, *before, "star")
    assert "lazy.part" not in closure(tmp_path, "lazy.part", "lazy")


def test_the_order_is_that_of_a_process_that_has_imported_nothing(tmp_path: Path) -> None:
    (tmp_path / "pack").mkdir()
    files = {
        "pack/__init__.py": "import first\nfrom pack import part",
        "pack/part.py": "import second, pack",
        "pack/late.py": "import third\nimport pack.part",
        "first.py": "import third",
        "second.py": "",
        "third.py": "import first",
    }
    for name, source in files.items():
        (tmp_path / name).write_text(source)
    expected = ["third", "first", "second", "pack.part", "pack", "pack.late"]
    for before in [], ["second", "first", "pack"]:
        # Imports load modules of Python as well.
        found = [name for name in closure(tmp_path, *before, "pack.late") if name in expected]
        assert found == expected
