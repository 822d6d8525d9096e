"""Functions of the user's inside installed packages: in jax's, no capture can put them where jax calls them."""

import jax
import pytest

from jitclient.capture.ambient import patches
from jitclient.capture.dump import capture
from jitclient.capture.load import load
from jitclient.errors import CaptureError

SOURCE = """
import functools
import jax
import um_library
def mine(x):
    return x + 2
{patch}
def through(x):
    return um_library.outer(x)
def direct(x):
    return um_library.inner(x)
def by_jax(x):
    return jax.numpy.sin(x)
"""


@pytest.fixture
def library(tmp_path, monkeypatch):
    folder = tmp_path / "site-packages"
    folder.mkdir()
    text = "def inner(x):\n    return x + 1\n\ndef outer(x):\n    return inner(x)\n"
    (folder / "um_library.py").write_text(text)
    monkeypatch.syspath_prepend(str(folder))


@pytest.mark.parametrize(
    "patch", ["mine", "functools.partial(mine)", "functools.lru_cache(mine)", "jax.jit(mine)", "staticmethod(mine)"]
)
@pytest.mark.parametrize("where", ["jax.numpy.linalg.norm", "jax.core.Tracer.clip"])
def test_what_replaces_code_of_jax_is_refused(library, write, monkeypatch, where, patch):
    owner, _, name = where.rpartition(".")
    found = jax.numpy.linalg if owner == "jax.numpy.linalg" else jax.core.Tracer
    monkeypatch.setattr(found, name, getattr(found, name))  # puts it back
    patches._find_patches_once.cache_clear()
    module = write(um_patcher=SOURCE.format(patch=f"{where} = {patch}"))
    with pytest.raises(CaptureError, match=rf"{found.__name__}\.{name}"):
        capture(module.by_jax)
    patches._find_patches_once.cache_clear()


def test_what_replaces_code_of_another_package_travels_where_user_code_names_it(library, write):
    module = write(um_patcher=SOURCE.format(patch="um_library.inner = mine"))
    assert load(capture(module.direct).payload).fn(1) == 3
    assert load(capture(module.through).payload).fn(1) == module.through(1)  # here; elsewhere, the manifest tells


def test_untouched_packages_are_fine(library, write):
    module = write(um_patcher=SOURCE.format(patch=""))
    assert load(capture(module.through).payload).fn(1) == 2
    assert load(capture(module.by_jax).payload).fn(1.0) == jax.numpy.sin(1.0)
