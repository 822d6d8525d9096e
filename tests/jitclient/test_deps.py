"""Declared inputs: what counts of each kind, and inputs that change under a trace."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import jitclient
from jitclient.deps import Deps


def test_the_names_and_contents_of_a_folder_count(tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "other"]
    for folder in folders:
        (folder / "in").mkdir(parents=True)
        (folder / "in" / "a").write_text("a")
        (folder / "in" / "again").symlink_to(folder)
    one, other = (Deps.of([folder]) for folder in folders)
    assert one is not None
    assert other is not None
    assert one.now() == other.now()
    before, stamp = one.now(), one.stamp()
    assert before[0][1] is not None

    (folders[0] / "in" / "a").write_text("bb")
    assert one.now() != before
    assert one.stamp() != stamp
    (folders[0] / "in" / "a").write_text("a")
    assert one.now() == before
    (folders[0] / "in" / "a").rename(folders[0] / "in" / "b")
    assert one.differ(before)
    assert one.stamp() != stamp


def test_a_string_that_names_no_variable_is_refused() -> None:
    with pytest.raises(TypeError, match=r"weights\.json.*pathlib\.Path"):
        jitclient.jit(lambda x: x, deps=["weights.json"])
    jitclient.jit(lambda x: x, deps=["_SCALE2"])


CHANGES = """
    import json, os, jitclient

    left = {times}

    def change():
        global left
        if left:
            left -= 1
            os.environ["SCALE"] = str(float(os.environ["SCALE"]) + 1)

    @jitclient.jit(deps=["SCALE"])
    def reads(x):
        scale = float(os.environ["SCALE"])
        {change}
        return x * scale

    print(json.dumps([float(reads(1.0)), float(os.environ["SCALE"])]))
"""


def test_inputs_that_change_under_the_trace_are_never_taken_for_the_old_ones(
    new_daemon: Callable[..., Any], short_path: Path, run_script: Callable[..., Any]
) -> None:
    env = {"JITSERVER_ADDRESS": f"unix:{short_path}/d.sock", "SCALE": "2"}
    change = "exec('import sys; sys.modules[\\'__main__\\'].change()')"
    with new_daemon(env["JITSERVER_ADDRESS"]):
        assert run_script(CHANGES.format(times=1, change=change), env=env) == [3, 3]
        value, _ = run_script(CHANGES.format(times=0, change=change), env=env)
        assert value == 2, "the program of another input was kept under this one's key"


def test_variables_are_compared_and_values_are_not() -> None:
    deps = Deps.of(["SCALE", object()])
    assert deps is not None
    before = deps.now()
    os.environ["SCALE"] = "1"
    try:
        assert deps.differ(before)
    finally:
        del os.environ["SCALE"]
    assert not deps.differ(before)
