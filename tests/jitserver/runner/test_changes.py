"""Which functions of a file differ: by qualified name, as far as a program can depend on them."""

import textwrap

import pytest

from jitserver.runner.changes import Changes, Outline, compare, outline

SOURCE = '''
"""About the module."""
import functools

RATE = 0.1

def step(x, scale=2.0):
    """Return a step."""
    total = x * scale  # scaled

    def inner(y):
        return y + total
    return inner(x)

@functools.cache
def table(n):
    return list(range(n))

class Model:
    """A model."""
    width = 8

    def forward(self, x):
        return x * self.width

if __name__ == "__main__":
    print(step(1.0))
'''


def made(source: str) -> Outline:
    found = outline(textwrap.dedent(source).encode())
    assert found is not None
    return found


def changes(old: str, new: str) -> Changes:
    assert old in SOURCE
    return compare(made(SOURCE), made(SOURCE.replace(old, new)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("  # scaled", "  # scaled again"),
        ("    total = x * scale", "\n\n    total = x * scale"),
        ('"""Return a step."""', '"""Return another step."""'),
        ('    """Return a step."""\n', ""),
        ('"""A model."""', '"""Some model."""'),
        ('"""About the module."""', ""),
        ("total", "product"),
        ("x * scale", "(x * scale)"),
    ],
)
def test_a_change_that_no_program_can_see(old: str, new: str) -> None:
    found = changes(old, new)
    assert not found
    assert found == Changes((), False)


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("x * scale", "x - scale", "step"),
        ("y + total", "y - total", "step"),
        ("scale=2.0", "scale=3.0", "step"),
        ("@functools.cache", "@functools.lru_cache(8)", "table"),
        ("x * self.width", "x + self.width", "Model.forward"),
        ("width = 8", "width = 16", "Model"),
        ("class Model:", "class Model(dict):", "Model"),
    ],
)
def test_a_changed_function_or_class(old: str, new: str, name: str) -> None:
    assert changes(old, new) == Changes((name,), False)


@pytest.mark.parametrize(
    ("old", "new"), [("RATE = 0.1", "RATE = 0.2"), ("print(step(1.0))", "print(step(2.0))"), ("import functools\n", "")]
)
def test_changed_code_at_module_level(old: str, new: str) -> None:
    assert changes(old, new) == Changes((), True)


def test_a_function_that_is_new_or_gone() -> None:
    with_more = SOURCE.replace("class Model:", "def more(x):\n    return x\n\nclass Model:")
    assert compare(made(SOURCE), made(with_more)) == Changes(("more",), False)
    assert compare(made(with_more), made(SOURCE)) == Changes(("more",), False)


def test_docstrings_count_where_the_file_reads_them() -> None:
    reading = SOURCE + "\nprint(step.__doc__)\n"
    changed = reading.replace("Return a step", "Return another step")
    assert compare(made(reading), made(changed)).definitions == ("step",)


@pytest.mark.parametrize("source", [b"def f(:", b"\xff\xfe", b"x = 1\0"])
def test_a_file_that_is_not_python(source: bytes) -> None:
    assert outline(source) is None
