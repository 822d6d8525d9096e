"""Functions of the user's inside installed packages, where installed code calls them."""

import pytest

from jitclient.capture import capture, load, patches
from jitclient.errors import CaptureError


@pytest.fixture
def library(tmp_path, monkeypatch):
    folder = tmp_path / "site-packages"
    folder.mkdir()
    text = "def inner(x):\n    return x + 1\n\ndef outer(x):\n    return inner(x)\n\n"
    text += "class Inner:\n    def apply(self, x):\n        return x + 1\n\n"
    text += "def by_class(x):\n    return Inner().apply(x)\n"
    (folder / "um_library.py").write_text(text)
    monkeypatch.syspath_prepend(str(folder))
    yield
    patches._patches_in.cache_clear()


SOURCE = """
import um_library
def mine(x):
    return x + 2
{patch}
def through(x):
    return um_library.outer(x)
def direct(x):
    return um_library.inner(x)
def through_a_class(x):
    return um_library.by_class(x)
"""


def test_a_patch_that_installed_code_calls_is_refused(library, write):
    module = write(um_patcher=SOURCE.format(patch="um_library.inner = mine"))
    with pytest.raises(CaptureError, match=r"um_library\.inner"):
        capture(module.through)
    assert load(capture(module.direct).payload).fn(1) == 3


def test_a_patch_of_a_class_that_only_installed_code_touches_is_refused(library, write):
    module = write(um_patcher=SOURCE.format(patch="um_library.Inner.apply = lambda self, x: x + 3"))
    assert module.through_a_class(1) == 4
    with pytest.raises(CaptureError, match=r"um_library\.Inner\.apply"):
        capture(module.through_a_class)


def test_an_untouched_package_is_fine(library, write):
    module = write(um_patcher=SOURCE.format(patch=""))
    assert load(capture(module.through).payload).fn(1) == 2
    assert load(capture(module.through_a_class).payload).fn(1) == 2
