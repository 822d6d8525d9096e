"""Kinds of functions times ways to meet them again, each way in a real fresh process.

One process per axis captures all kinds. On the stability axes no key may change; after an edit of anything that a
function depends on, its key must; and a process that has nothing but the bytes must compute what the original computes.
In the core, each kind meets all changes that must not matter and has one edit.
"""

import compileall
import json
import os
import subprocess
import sys
import types
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from ...conftest import HASTY

HERE = Path(__file__).parent


def _read_kinds(name):
    spec = spec_from_file_location(name, HERE / f"{name}.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.KINDS


KINDS = {
    **_read_kinds("kinds_plain"),
    **_read_kinds("kinds_classes"),
    **_read_kinds("kinds_jax"),
}
N_EDITS = max(len(kind["edits"]) for kind in KINDS.values())
NONE = types.MappingProxyType({})


def as_is(text):
    return text


def moved(text):
    if text.startswith("from __future__"):
        return "#\n\n\n" + text
    return "# moved\n\n\n\n\n" + text


def commented(text):
    lines = []
    for line in text.splitlines():
        indent = line[: len(line) - len(line.lstrip())]
        if line.lstrip().startswith(("def ", "class ", "return ")):
            lines.append(f"{indent}# a comment")
        lines.append(f"{line}  # another" if line and "'''" not in line and '"' not in line else line)
    return "\n".join(lines).replace("DOC", "Another docstring.") + "\n"


def renamed(text):
    return text.replace("local_v", "other_name")


STABLE = {
    "elsewhere": {
        "change": lambda text: commented(moved(text)),
        "seed": 6,
        "folder": "deeper/down",
        "cwd": "/",
        "flags": ["--backwards", "--run-first"],
        "bytecode": True,
    },
    "as_main_with_other_names": {"change": renamed, "seed": 7, "flags": ["--as-main"]},
}
MORE_STABLE = {
    "elsewhere_not_run_before": {**STABLE["elsewhere"], "seed": 1, "flags": ()},
    "hash_seed": {"seed": 2, "flags": ["--backwards"]},
}
WITH_OTHER_NAMES = ("as_main_with_other_names",)
"""Axes that change the names of parts, which are those of modules and variables."""

CHANGED_BY_A_RUN = {"lru_cached"}
"""Kinds that a run leaves with another capture: what a cache holds decides what the function gives."""

ONE_EDIT = {name: n % len(kind["edits"]) for n, (name, kind) in enumerate(KINDS.items())}
EDITS = [{name: n for name, kind in KINDS.items() if n < len(kind["edits"])} for n in range(N_EDITS)]
"""The number of each kind's edit, in one process after another."""


def write_kinds(folder, change=as_is, edits=NONE, kinds=KINDS):
    for name in kinds:
        kind = KINDS[name]
        files = {f"k_{name}.py": kind["source"], **kind.get("files", {})}
        if name in edits:
            where, old, new = (f"k_{name}.py", *kind["edits"][edits[name]])[-3:]
            assert old in files[where], f"edit {edits[name]} of {name} edits nothing"
            files[where] = files[where].replace(old, new)
        for path, text in files.items():
            place = folder / name / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(change(text))


def work(mode, folder, out, *flags, base, seed=0, cwd=None):
    environment = {
        **os.environ,
        "PYTHONHASHSEED": str(seed),
        "PYTHONDONTWRITEBYTECODE": "1",
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": HASTY,
        # the kinds build the same models in every process
        "JAX_COMPILATION_CACHE_DIR": str(base / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    command = [sys.executable, "-P", str(HERE / "matrix_worker.py"), mode, str(folder), str(out)]
    subprocess.run([*command, *flags], check=True, env=environment, cwd=cwd, timeout=500)
    return json.loads((out / "report.json").read_text())


def capture(base, name, change=as_is, edits=NONE, kinds=KINDS, folder="", seed=0, cwd=None, flags=(), bytecode=False):
    root = base / name / folder / "kinds"
    write_kinds(root, change, edits, kinds)
    if bytecode:  # as after the first import: Python then makes no code from the source
        compileall.compile_dir(root, quiet=2)
    report = work("capture", root, base / f"{name}.out", *flags, base=base, seed=seed, cwd=cwd)
    assert {kind: found["error"] for kind, found in report.items() if "error" in found} == {}
    return report


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return tmp_path_factory.mktemp("matrix")


@pytest.fixture(scope="module")
def first(base):
    return capture(base, "first", flags=["--values"])


def slowly(cases):
    return [pytest.param(case, marks=pytest.mark.slow) for case in cases]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("axis", [*STABLE, *slowly(MORE_STABLE)])
def test_keys_and_parts_are_stable(base, first, axis):
    options = {**STABLE, **MORE_STABLE}[axis]
    report = capture(base, axis, **options)
    changed = CHANGED_BY_A_RUN if "--run-first" in options["flags"] else set()
    assert {kind for kind in KINDS if report[kind]["key"] != first[kind]["key"]} == changed
    if axis not in WITH_OTHER_NAMES:
        assert {kind for kind in KINDS if report[kind]["parts"] != first[kind]["parts"]} == changed


@pytest.mark.timeout(600)
@pytest.mark.parametrize("edits", [ONE_EDIT, *slowly(EDITS)], ids=["one_each", *map(str, range(N_EDITS))])
def test_every_edit_changes_the_key_and_some_parts_but_not_all(base, first, edits, request):
    report = capture(base, request.node.callspec.id, edits=edits, kinds=edits)
    assert report.keys() == edits.keys()
    assert {kind for kind in edits if report[kind]["key"] == first[kind]["key"]} == set()
    parts = {kind: (first[kind]["parts"], report[kind]["parts"]) for kind in edits}
    assert {kind for kind, (before, after) in parts.items() if before == after} == set()
    assert {kind for kind, (before, after) in parts.items() if not before.items() & after.items()} == set()


@pytest.mark.timeout(600)
def test_loaded_functions_compute_the_same_and_enter_no_module(base, first):
    loaded = work("load", base / "first.out", base / "loaded.out", base=base, cwd="/")
    assert loaded.pop("modules") == []
    assert {kind: found["error"] for kind, found in loaded.items() if "error" in found} == {}
    assert {kind: found["value"] for kind, found in loaded.items()} == {kind: first[kind]["value"] for kind in KINDS}
