"""Consequences of a change for the programs of the last run, by the names in their captures."""

import pytest

from jitserver.runner.affected import Used, consequences, module_name, programs_in

STEP = Used("step(f32[8])", 3.1, frozenset({"step", "loss", "Model", "forward", module_name("layers")}))
OTHER = Used("other(f32[8])", 0.2, frozenset({"other"}))
UNKNOWN = Used("new(f32[8])", 0.2, None)
USES = "step(f32[8]) uses what changed (was made in 3.1 s)"


def names(*changed: str) -> list[frozenset[str]]:
    return [frozenset(name.split(".")) for name in changed]


@pytest.mark.parametrize("changed", ["step", "loss", "Model.forward", "Model"])
def test_a_program_whose_capture_names_what_changed(changed: str) -> None:
    assert consequences([STEP, OTHER], names(changed), False) == f"{USES}; 1 stays"


def test_a_module_that_a_capture_has_whole() -> None:
    assert consequences([STEP, OTHER], [frozenset([module_name("layers")])], False) == f"{USES}; 1 stays"


@pytest.mark.parametrize("changed", ["Other.forward", "layers", "unused"])
def test_a_name_of_something_else(changed: str) -> None:
    assert consequences([STEP, OTHER], names(changed), False) == "2 stay"


def test_what_is_not_known_may_change() -> None:
    assert consequences([STEP, OTHER], names("step"), True) == f"{USES}; 1 may change"
    assert consequences([STEP, UNKNOWN], names("loss"), False) == f"{USES}; 1 may change"


def test_nothing_changed() -> None:
    assert consequences([STEP, OTHER, UNKNOWN], [], False) == "3 stay"
    assert consequences([], names("step"), True) == ""


def test_many_programs_are_counted() -> None:
    many = [STEP._replace(program=f"step(f32[{size}])") for size in range(9)]
    assert consequences(many, names("step"), False).endswith("; 5 more use it")


@pytest.mark.parametrize("report", [b"", b"{}", b"[1]", b'{"programs": 3}'])
def test_a_run_without_a_report(report: bytes) -> None:
    assert programs_in(report) == {}
