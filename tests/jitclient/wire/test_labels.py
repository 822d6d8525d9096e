"""Labels of calls distinguish what changes between calls: a batch beside parameters."""

import pytest

from jitclient.wire.labels import of_call
from jitclient.wire.messages import Spec

PARAMS = [(f"params['w{n}']", (8, 8)) for n in range(20)]
STATE = [(f"state[{n}]", (8,)) for n in range(3)]


@pytest.mark.parametrize(
    ("leaves", "label"),
    [
        ([("x", (8,)), ("y", ())], "f(f32[8], f32[])"),
        ([*PARAMS[:2], *STATE[:2]], "f(f32[8,8], f32[8,8], f32[8], f32[8])"),
        ([*PARAMS, ("x", (128, 8))], "f(f32[8,8], … 19 more, f32[128,8])"),
        ([*PARAMS, ("x", (256, 8)), *STATE], "f(f32[8,8], … 19 more, f32[256,8], f32[8], … 2 more)"),
        ([*PARAMS, *STATE[:2]], "f(f32[8,8], … 19 more, f32[8], f32[8])"),
        ([(f"x{n}", ()) for n in range(12)], f"f({'f32[], ' * 4}… 4 more{', f32[]' * 4})"),
    ],
)
def test_a_label_shows_each_argument_once(leaves: list[tuple[str, tuple[int, ...]]], label: str) -> None:
    names, shapes = zip(*leaves, strict=True)
    assert of_call("f", [Spec(shape, "float32") for shape in shapes], names) == label


def test_without_names_a_label_leaves_out_the_middle() -> None:
    specs = [Spec((n,), "int32") for n in range(10)]
    assert of_call("f", specs) == "f(i32[0], i32[1], i32[2], i32[3], … 2 more, i32[6], i32[7], i32[8], i32[9])"
