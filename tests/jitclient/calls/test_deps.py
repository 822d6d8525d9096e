"""Declared inputs: what counts of each kind, and inputs that change under a trace."""

import os
import time
from pathlib import Path, PurePath, PureWindowsPath
from typing import Any

import pytest

import jitclient
from jitclient.calls import deps as deps_module
from jitclient.calls.deps import Deps, stamp_of


def deps_of(*declared: Any) -> Deps:
    made = Deps.of(declared)
    assert made is not None
    return made


def contents(deps: Deps) -> list[Any]:
    return [found.extra for found in deps.now()]


def age(path: Path) -> None:
    """Make a file look unchanged for long, as far as a file's own times show it."""
    os.utime(path, (1_000_000_000, 1_000_000_000))


def test_the_names_and_contents_of_a_folder_count(tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "other"]
    for folder in folders:
        (folder / "in").mkdir(parents=True)
        (folder / "in" / "a").write_text("a")
        (folder / "in" / "again").symlink_to(folder)
    one, other = map(deps_of, folders)
    assert contents(one) == contents(other)
    before, stamp = one.now(), one.stamp()
    assert stamp_of(before) == stamp

    (folders[0] / "in" / "a").write_text("bb")
    assert not one.still(before)
    assert one.stamp() != stamp
    (folders[0] / "in" / "a").write_text("a")
    assert one.still(before)
    (folders[0] / "in" / "a").rename(folders[0] / "in" / "b")
    assert not one.still(before)
    assert one.stamp() != stamp


def test_a_file_of_the_same_size_and_time_with_another_content_is_another(tmp_path: Path) -> None:
    path = tmp_path / "w"
    deps = deps_of(path)
    stamps = set()
    for n in range(9):  # quicker than the clock of the disk ticks
        path.write_text(str(n))
        age(path)
        stamps.add(deps.stamp())
    assert len(stamps) == 9


def test_a_file_that_lies_still_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "w"
    path.write_text("2")
    deps = deps_of(path)
    read: list[Path] = []
    digest = deps_module._digest_of_file
    monkeypatch.setattr(deps_module, "_digest_of_file", lambda path: read.append(path) or digest(path))
    assert deps.stamp() == stamp_of(deps.now())
    assert read == [path, path]
    now = time.time() + 10
    monkeypatch.setattr(deps_module, "time", lambda: now)
    assert deps.stamp() == deps.stamp()
    assert len(read) == 2
    assert deps.stamp() == stamp_of(deps.now())


def test_what_is_no_file_is_none_and_harms_nobody(tmp_path: Path) -> None:
    missing, loop, pipe, below, impossible = (tmp_path / name for name in ("missing", "loop", "pipe", "file/x", "a\0b"))
    loop.symlink_to(loop)
    os.mkfifo(pipe)
    (tmp_path / "file").write_text("x")
    deps = deps_of(missing, loop, pipe, below, impossible)
    assert [found.text for found in deps.now()] == ["missing", "missing", "no file", "missing", "missing"]
    assert deps.stamp() == stamp_of(deps.now())
    before = deps.now()
    missing.write_text("")
    assert not deps.still(before)
    assert deps.stamp() != stamp_of(before)
    assert deps.now()[0].text == ""


def test_a_file_that_cannot_be_read_is_the_functions_to_complain_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "secret"
    path.write_text("x")
    deps = deps_of(path)
    readable = deps.now()

    def denied(*_: Any) -> Any:
        raise PermissionError("no")

    monkeypatch.setattr("builtins.open", denied)  # root may read whatever it likes
    assert deps.now()[0].text == "unreadable"
    assert deps.stamp() == stamp_of(deps.now())
    assert not deps.still(readable)


def test_files_without_size_or_time_are_read_each_time() -> None:
    deps = deps_of(Path("/proc/uptime"))
    stamp = deps.stamp()
    until = time.monotonic() + 10
    while deps.stamp() == stamp:
        assert time.monotonic() < until, "it was taken for a file that never changes"


def test_an_empty_variable_is_not_an_unset_one(monkeypatch: pytest.MonkeyPatch) -> None:
    deps = deps_of("SCALE")
    monkeypatch.delenv("SCALE", raising=False)
    unset = deps.now()
    monkeypatch.setenv("SCALE", "")
    assert not deps.still(unset)
    assert deps.stamp() != stamp_of(unset)
    assert [found.text for found in (*unset, *deps.now())] == ["unset", "''"]


@pytest.mark.parametrize("declared", ["SCALE", Path("w"), b"w", 3, PurePath("w")])
def test_what_is_no_sequence_is_refused(declared: Any) -> None:
    with pytest.raises(TypeError, match="deps takes a sequence"):
        jitclient.jit(lambda x: x, deps=declared)


def test_a_path_of_another_system_is_refused() -> None:
    with pytest.raises(TypeError, match=r"pathlib\.Path"):
        jitclient.jit(lambda x: x, deps=[PureWindowsPath("w")])


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


def test_inputs_that_change_under_the_trace_are_never_taken_for_the_old_ones(own: Any) -> None:
    change = "exec('import sys; sys.modules[\\'__main__\\'].change()')"
    with own.serving():
        assert own.run(CHANGES.format(times=1, change=change), SCALE="2") == [3, 3]
        value, _ = own.run(CHANGES.format(times=0, change=change), SCALE="2")
        assert value == 2, "the program of another input was kept under this one's key"


def test_values_are_not_compared_while_a_program_is_made() -> None:
    class Touchy:
        def __eq__(self, other: object) -> bool:
            raise AssertionError("compared")

        __hash__ = None  # type: ignore[assignment]

    deps = deps_of("SCALE", Touchy(), [1], float("nan"))
    before = deps.now()
    assert deps.still(before)
    assert deps.stamp() == stamp_of(before)


BACK = """
    import json, os, jitclient
    from jitclient.calls.deps import Deps

    @jitclient.jit(deps=["SCALE"])
    def reads(x):
        return x * float(os.environ["SCALE"])

    now = Deps.now

    def meanwhile(deps):  # another thread sets it for a moment, after this one has looked at it for the first time
        os.environ["SCALE"] = "3"
        return now(deps)

    Deps.now = meanwhile
    first = float(reads(1.0))
    Deps.now = now
    os.environ["SCALE"] = "2"
    print(json.dumps([first, float(reads(1.0)), float(reads(1.0))]))
"""


RESTLESS = """
    import json, os, warnings, jitclient

    @jitclient.jit(deps=["SCALE"])
    def restless(x):
        os.environ["SCALE"] = str(float(os.environ["SCALE"]) + 1)
        return x * float(os.environ["SCALE"])

    try:
        restless(1.0)
    except jitclient.CaptureError as error:
        print(json.dumps(str(error)))
"""


@pytest.mark.parametrize(
    ("program", "expected"),
    [(BACK, [3, 2, 2]), (RESTLESS, "the declared inputs change during the trace")],
    ids=["a program is found by the inputs that it was made of", "inputs that always change are an error"],
)
def test_inputs_that_change_during_the_trace(own: Any, program: str, expected: Any) -> None:
    with own.serving():
        assert own.run(program, SCALE="2") == expected


VALUES = """
    import json, os, threading, jitclient
    from jitclient.session import process
    from jitclient.wire.introspection import Status
    from jitclient.wire.messages import Verb

    def reads(x):
        os.environ.get("NOTHING")
        return x * CONFIG["scale"]

    def traces(call):
        before = process.session().ask(Verb.STATUS, None, Status)
        value = float(call(1.0))
        process.session().send_report()
        after = process.session().ask(Verb.STATUS, None, Status)
        return value, after.client_traces - before.client_traces

    CONFIG = {"scale": 2}
    found = []
    first = jitclient.jit(reads, deps=[CONFIG])
    found.append(traces(first))
    CONFIG["scale"] = 3
    found.append(traces(first))
    found.append(traces(jitclient.jit(reads, deps=[CONFIG])))
    CONFIG["scale"] = 2
    found.append(traces(jitclient.jit(reads, deps=[CONFIG])))
    held = jitclient.jit(lambda x: x + float(os.environ.get("NOTHING", 1)), deps=[threading.Lock(), CONFIG])
    found += [traces(held), traces(held)]
    print(json.dumps(found))
"""


def test_a_value_counts_as_it_is_when_a_program_is_made(own: Any) -> None:
    with own.serving():
        assert own.run(VALUES) == [[2, 1], [2, 0], [3, 1], [2, 0], [2, 1], [2, 0]]
