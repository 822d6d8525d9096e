"""Kinds of functions times ways to meet them again, each in a real fresh process.

One process per axis captures the kinds that are asked for. On the stability axes no key may change; after an edit of
anything that a function depends on, its key must; and a process that has nothing but the bytes
must compute what the original computes. In the core, each kind meets all stability axes at once and has one edit: the
slow tests say which of them it was.
"""

import collections
import compileall
import json
import os
import subprocess
import sys
import types
from concurrent.futures import ThreadPoolExecutor
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

HERE = Path(__file__).parent
pytestmark = pytest.mark.timeout(900)  # the first test waits for the processes of all axes


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
    "rerun": {},
    "hash_seed_1": {"seed": 1},
    "hash_seed_2": {"seed": 2, "flags": ["--backwards"]},
    "moved": {"change": moved, "seed": 3},
    "commented": {"change": commented, "seed": 4},
    "renamed": {"change": renamed, "seed": 5},
    "other_path_and_cwd": {"folder": "deeper/down", "cwd": "/"},
    "main": {"flags": ["--as-main"]},
    "run_first": {"flags": ["--run-first"]},
    "cached_bytecode": {"bytecode": True, "seed": 8},
}
WITH_OTHER_NAMES = {"main", "renamed"}  # names of parts are those of modules and variables
TOGETHER = {
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
"""All stability axes, in two processes."""

EDITS = [{name: n for name, kind in KINDS.items() if n < len(kind["edits"])} for n in range(N_EDITS)]
"""The number of each kind's edit, in one process after another."""

ONE_EDIT = {"one_edit": {"edits": {name: n % len(kind["edits"]) for n, (name, kind) in enumerate(KINDS.items())}}}
AXES = STABLE | TOGETHER | {f"edit_{n}": {"edits": edits} for n, edits in enumerate(EDITS)} | ONE_EDIT


def of_each_kind(axes, slow=()):
    return [
        *[pytest.param(kind, axis) for kind in KINDS for axis in axes],
        *[pytest.param(kind, axis, marks=pytest.mark.slow) for kind in KINDS for axis in slow],
    ]


CHANGED_BY_A_RUN = ("lru_cached",)
"""Kinds that a run leaves with another capture: what a cache holds decides what the function gives."""


def unless_a_run_changes_it(pairs):
    runs_first = {name for name, axis in AXES.items() if "--run-first" in axis.get("flags", ())}
    return [pair for pair in pairs if not (pair.values[0] in CHANGED_BY_A_RUN and pair.values[1] in runs_first)]


STABLE_PAIRS = unless_a_run_changes_it(of_each_kind(TOGETHER, slow=STABLE))
STABLE_PARTS = unless_a_run_changes_it(
    of_each_kind(["elsewhere"], slow=[axis for axis in STABLE if axis not in WITH_OTHER_NAMES])
)
EDITED_PAIRS = [
    *of_each_kind(ONE_EDIT),
    *[
        pytest.param(name, f"edit_{n}", marks=pytest.mark.slow)
        for name, kind in KINDS.items()
        for n in range(len(kind["edits"]))
    ],
]


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
        # the kinds build the same models in every process
        "JAX_COMPILATION_CACHE_DIR": str(base / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    command = [sys.executable, "-P", str(HERE / "matrix_worker.py"), mode, str(folder), str(out)]
    subprocess.run([*command, *flags], check=True, env=environment, cwd=cwd, timeout=500)
    return json.loads((out / "report.json").read_text())


def capture(base, name, kinds, change=as_is, edits=NONE, folder="", seed=0, cwd=None, flags=(), bytecode=False):
    root = base / name / folder / "kinds"
    write_kinds(root, change, edits, kinds)
    if bytecode:  # as after the first import: Python then makes no code from the source
        compileall.compile_dir(root, quiet=2)
    return work("capture", root, base / f"{name}.out", *flags, base=base, seed=seed, cwd=cwd)


@pytest.fixture(scope="module")
def asked(request):
    """Axis -> the kinds that this run tests on it."""
    found = collections.defaultdict(set)
    for item in request.session.items:
        if item.path == request.path and hasattr(item, "callspec") and "axis" in item.callspec.params:
            found[item.callspec.params["axis"]].add(item.callspec.params["kind"])
    return found


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return tmp_path_factory.mktemp("matrix")


@pytest.fixture(scope="module")
def first(base):
    return capture(base, "first", KINDS, flags=["--values"])


@pytest.fixture(scope="module")
def loaded(base, first):
    return work("load", base / "first.out", base / "loaded.out", base=base, cwd="/")


@pytest.fixture(scope="module")
def reports(base, first, asked):
    """The report of every axis that is asked for, worked out side by side."""
    with ThreadPoolExecutor(max_workers=2) as pool:
        jobs = {name: pool.submit(capture, base, name, kinds, **AXES[name]) for name, kinds in asked.items()}
    return {name: job.result() for name, job in jobs.items()}


def key_of(report, kind):
    assert "error" not in report[kind], report[kind]["error"]
    return report[kind]["key"]


@pytest.mark.parametrize(("kind", "axis"), STABLE_PAIRS)
def test_key_is_stable(first, reports, kind, axis):
    assert key_of(reports[axis], kind) == key_of(first, kind)


@pytest.mark.parametrize(("kind", "axis"), [(kind, "elsewhere") for kind in CHANGED_BY_A_RUN])
def test_key_changes_with_what_a_cache_holds(first, reports, kind, axis):
    assert key_of(reports[axis], kind) != key_of(first, kind)


@pytest.mark.parametrize(("kind", "axis"), EDITED_PAIRS)
def test_key_changes_with_every_dependency(first, reports, kind, axis):
    assert key_of(reports[axis], kind) != key_of(first, kind)


@pytest.mark.parametrize(("kind", "axis"), STABLE_PARTS)
def test_parts_are_stable(first, reports, kind, axis):
    assert reports[axis][kind]["parts"] == first[kind]["parts"]


@pytest.mark.parametrize(("kind", "axis"), EDITED_PAIRS)
def test_every_edit_shows_in_some_parts_and_not_in_all(first, reports, kind, axis):
    before, after = first[kind]["parts"], reports[axis][kind]["parts"]
    assert before != after
    assert before.items() & after.items()


@pytest.mark.parametrize("kind", KINDS)
def test_loaded_function_computes_the_same(first, loaded, kind):
    assert "error" not in loaded[kind], loaded[kind]["error"]
    assert loaded[kind]["value"] == first[kind]["value"]


def test_nothing_of_the_users_enters_sys_modules(loaded):
    assert loaded["modules"] == []
