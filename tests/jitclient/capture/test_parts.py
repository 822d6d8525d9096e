"""Two captures differ if and only if a part of them does, and the part is the one that was edited.

That every edit of every kind of function shows, and nothing else, is tested in `test_matrix.py`.
"""

import importlib.util
import itertools
import sys
import textwrap
import types
from pathlib import Path

import pytest

from jitclient.capture.dump import capture
from jitclient.capture.explain.parts import parts_of

HERE = Path(__file__).parent


def _read(name):
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_PROGRAMS = _read("test_pairs")
PAIRS, key_of = _PROGRAMS.DIFFERENT, _PROGRAMS.key_of


def parts_by_label(made):
    parts = parts_of(made.payload, made.locations)
    assert len({part.label for part in parts}) == len(parts)
    return {part.label: part for part in parts}


def taken_apart(source, name="um_pair"):
    module = types.ModuleType(name)
    sys.modules[name] = module
    try:
        exec(compile(textwrap.dedent(source), f"/nowhere/{name}.py", "exec", dont_inherit=True), vars(module))
        return parts_by_label(capture(module.fn))
    finally:
        del sys.modules[name]


def differing(first, second):
    labels = dict.fromkeys([*first, *second])
    return [n for n in labels if n not in first or n not in second or first[n].digest != second[n].digest]


@pytest.mark.parametrize("pair", PAIRS)
def test_what_differs_in_bytes_differs_in_a_part(pair):
    first, second = PAIRS[pair]
    assert differing(taken_apart(first), taken_apart(second))
    assert differing(taken_apart(first), taken_apart("# moved\n\n" + first)) == []


def test_any_two_programs_differ_in_bytes_only_if_they_differ_in_parts():
    made = [(key_of(source), taken_apart(source)) for pair in PAIRS.values() for source in pair]
    for (first_key, first), (second_key, second) in itertools.combinations(made, 2):
        assert bool(differing(first, second)) == (first_key != second_key)


STEP = """
    import functools
    import numpy as np
    LR = 0.001
    CONFIG = {"lr": 0.5, "layers": [1, 2]}
    WEIGHTS = np.zeros((300, 2), np.float32)
    SCALE = np.float32(2.5)
    class Layer:
        width = 3
        def __init__(self, n):
            self.n = n
        def apply(self, x, more=1):
            return x * self.n
        @property
        def twice(self):
            return self.n * 2
    layer = Layer(4)
    def helper(x):
        return x + 1
    def outer(k):
        pair = (k, [k])
        def fn(x, n=2, *, m=3):
            return helper(layer.apply(x)) * LR * CONFIG["lr"] * WEIGHTS * SCALE * k + n + m + pair[0]
        return fn
    fn = outer(7)
"""


@pytest.mark.parametrize(
    ("old", "new", "label", "texts"),
    [
        ("LR = 0.001", "LR = 0.002", "global LR", ("0.001", "0.002")),
        ('"lr": 0.5', '"lr": 0.25', "global CONFIG['lr']", ("0.5", "0.25")),
        ("[1, 2]", "[1, 3]", "global CONFIG['layers'][1]", ("2", "3")),
        ("300, 2", "2, 1", "global WEIGHTS", ("float32[300,2] ", "float32[2,1] [[0.0], [0.0]]")),
        ("float32(2.5)", "float16(2.5)", "global SCALE", ("float32 2.5", "float16 2.5")),
        ("width = 3", "width = 4", "class Layer: attribute width", ("3", "4")),
        ("x * self.n", "x - self.n", "class Layer: method apply", ("", "")),
        ("n * 2", "n * 3", "class Layer: method twice", ("", "")),
        ("more=1", "more=5", "default more of Layer.apply", ("1", "5")),
        ("Layer(4)", "Layer(5)", "global layer.n", ("4", "5")),
        ("x + 1", "x + 2", "helper helper: code", ("", "")),
        ("+ n + m", "+ n - m", "code of fn", ("", "")),
        ("n=2", "n=6", "default n of fn", ("2", "6")),
        ("m=3", "m=6", "default m of fn", ("3", "6")),
        ("(k, [k])", "(k, [8])", "closure pair[1][0] of fn", ("7", "8")),
    ],
)
def test_an_edit_shows_where_it_was_made_and_nowhere_else(old, new, label, texts):
    assert old in STEP
    first, second = taken_apart(STEP), taken_apart(STEP.replace(old, new))
    assert differing(first, second) == [label]
    assert first[label].text.startswith(texts[0])
    assert second[label].text.startswith(texts[1])


def test_one_more_global_leaves_the_others_what_they_are():
    first = taken_apart("A = [1]\nZ = [2]\ndef fn(x): return x, Z")
    second = taken_apart("A = [1]\nZ = [2]\ndef fn(x): return x, A, Z")
    assert differing(first, second) == ["code of fn", "global A", "global A[0]"]


def test_parts_of_other_modules_have_their_module_and_place(write):
    write(um_tool="K = 1\n\n\ndef scale(x):\n    return x * K\n")
    module = write(um_first="import um_tool\n\ndef fn(x):\n    return um_tool.scale(x)\n")
    found = parts_by_label(capture(module.fn))
    assert found["code of fn"].where == "um_first.py:3"
    assert found["helper um_tool.scale: code"].where == "um_tool.py:4"
    assert found["global um_tool.K"].text == "1"


def test_values_of_the_call_have_the_names_that_they_are_given():
    class Config:
        def __init__(self, n):
            self.n = n

    def fn(x, config):
        return x * config.n

    def apart(n):
        made = capture(fn, (Config(n),))
        return {part.label: part for part in parts_of(made.payload, made.locations, {0: "static config"})}

    assert differing(apart(1), apart(2)) == ["static config.n"]


def test_methods_partials_and_deep_structures_come_apart_too():
    def method(k):
        return f"class A:\n def run(s, x): return x * s.k\na = A()\na.k = {k}\nfn = a.run"

    def partial(k):
        return f"import functools\ndef base(x, k, m): return x * k\nfn = functools.partial(base, {k}, m=1)"

    assert differing(taken_apart(method(1)), taken_apart(method(2))) == ["self.k of the function"]
    assert differing(taken_apart(partial(1)), taken_apart(partial(2))) == ["the function: argument 0"]
    deep = "L = []\nfor n in range(3000): L = [n, L]\ndef fn(x): return L"
    first, second = taken_apart(deep), taken_apart(deep.replace("range(3000)", "range(7, 3000)"))
    assert len(differing(first, second)) == 1
