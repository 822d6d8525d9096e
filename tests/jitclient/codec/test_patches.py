"""Functions of the user's inside installed packages, where installed code calls them."""

import pytest

from jitclient.codec.capture import capture, load
from jitclient.errors import CaptureError


@pytest.fixture
def library(tmp_path, monkeypatch):
    folder = tmp_path / "site-packages"
    folder.mkdir()
    text = "def other(x):\n    return x + 2\n\nfamiliar = other\n\n"
    text += "def inner(x):\n    return x + 1\n\ndef outer(x):\n    return inner(x)\n\n"
    text += "class Inner:\n    def apply(self, x):\n        return x + 1\n\n"
    text += "def by_class(x):\n    return Inner().apply(x)\n"
    (folder / "um_library.py").write_text(text)
    monkeypatch.syspath_prepend(str(folder))


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


def test_a_patch_made_after_another_capture_is_refused(library, write):
    module = write(um_patcher=SOURCE.format(patch=""))
    capture(module.through)
    module.um_library.inner = module.mine
    with pytest.raises(CaptureError, match=r"um_library\.inner"):
        capture(module.through)


@pytest.mark.parametrize(
    "patch",
    [
        "import functools; um_library.inner = functools.partial(mine)",
        "import functools; um_library.inner = functools.lru_cache(mine)",
        "import jax; um_library.inner = jax.jit(mine)",
    ],
)
def test_what_replaces_a_name_is_refused_inside_and_travels_outside(library, write, patch):
    module = write(um_patcher=SOURCE.format(patch=patch))
    assert module.through(1) == 3
    with pytest.raises(CaptureError, match=r"um_library\.inner"):
        capture(module.through)
    assert load(capture(module.direct).payload).fn(1) == 3


@pytest.mark.parametrize("wrapper", ["staticmethod", "classmethod", "functools.partialmethod", "property"])
def test_a_wrapped_patch_of_a_class_is_refused(library, write, wrapper):
    module = write(um_patcher=SOURCE.format(patch=f"import functools; um_library.Inner.apply = {wrapper}(mine)"))
    with pytest.raises(CaptureError, match=r"um_library\.Inner\.apply"):
        capture(module.through_a_class)


def test_a_patch_of_a_class_that_only_installed_code_touches_is_refused(library, write):
    module = write(um_patcher=SOURCE.format(patch="um_library.Inner.apply = lambda self, x: x + 3"))
    assert module.through_a_class(1) == 4
    with pytest.raises(CaptureError, match=r"um_library\.Inner\.apply"):
        capture(module.through_a_class)


def test_an_untouched_package_is_fine(library, write):
    module = write(um_patcher=SOURCE.format(patch=""))
    assert load(capture(module.through).payload).fn(1) == 2
    assert load(capture(module.through_a_class).payload).fn(1) == 2
