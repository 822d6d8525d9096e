"""The state of libraries that a trace obeys: what is listed is what the installed libraries have."""

import importlib
import subprocess
import sys

import pytest

from jitclient.codec.ambient import library_state
from jitclient.errors import AmbientInput, CaptureError

LIBRARIES = sorted({module.partition(".")[0] for module, _, _ in library_state.STATE})

UNTOUCHED = """
import importlib
from jitclient.codec.ambient.library_state import STATE, state_of
for module, path, untouched in STATE:
    if module.partition(".")[0] == {library!r}:
        importlib.import_module(module)
        if state_of(module, path) != untouched:
            print(module, path, state_of(module, path))
"""


@pytest.mark.slow
@pytest.mark.parametrize("library", LIBRARIES)
def test_each_library_has_what_is_listed(library):
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed here: nothing checks what is listed of it")
    told = subprocess.run(
        [sys.executable, "-c", UNTOUCHED.format(library=library)], capture_output=True, text=True, check=True
    )
    assert told.stdout == ""


@pytest.fixture
def chex():
    import chex

    yield chex
    chex.enable_asserts()


def test_a_setting_counts_for_those_who_may_use_the_library(chex):
    assert library_state.changed(["jax", "optax"]) == ()
    chex.disable_asserts()
    assert library_state.changed(["jax", "numpy"]) == ()
    assert library_state.changed(["jax", "optax"]) == (("chex._src.asserts_internal", "DISABLE_ASSERTIONS", True),)


def test_an_open_context_is_refused():
    from flax import nnx

    with nnx.update_context("tag"), pytest.raises(CaptureError, match="update_context_stacks"):
        library_state.changed(["flax"])


def test_it_is_entered_and_left(chex):
    asserts = importlib.import_module("chex._src.asserts_internal")
    stack = importlib.import_module("flax.linen.module")._context.module_stack
    state = (
        ("flax.linen.module", "_context.module_stack", (None, "a module")),
        ("chex._src.asserts_internal", "DISABLE_ASSERTIONS", True),
    )
    seen = []

    def inside():
        with library_state.entered(state):
            seen.extend((library_state.changed(["flax"]), list(stack)))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        inside()
    assert seen == [state, [None, "a module"]]
    assert (asserts.DISABLE_ASSERTIONS, stack) == (False, [None])


def test_what_this_process_was_started_with_does_not_count_for_others(chex, monkeypatch):
    import equinox

    monkeypatch.setattr("equinox._errors.EQX_ON_ERROR", "nan")
    chex.disable_asserts()
    asserts = importlib.import_module("chex._src.asserts_internal")
    with library_state.entered((("equinox._errors", "EQX_ON_ERROR", "off"),)):
        assert (equinox._errors.EQX_ON_ERROR, asserts.DISABLE_ASSERTIONS) == ("off", False)
    assert (equinox._errors.EQX_ON_ERROR, asserts.DISABLE_ASSERTIONS) == ("nan", True)


@pytest.mark.parametrize("place", [("os", "environ"), ("flax.configurations", "config._values.no_such"), ("os", "sep")])
def test_only_what_is_listed_is_set(place):
    with pytest.raises(CaptureError, match="which the program has set"), library_state.entered(((*place, 1),)):
        pytest.fail("it is set")


def test_what_is_changed_meanwhile_is_put_back_and_told(chex):
    import flax

    asserts = importlib.import_module("chex._src.asserts_internal")
    limit = sys.getrecursionlimit()

    def change():
        with library_state.entered(()):
            chex.disable_asserts()
            flax.config.update("flax_return_frozendict", True)
            sys.setrecursionlimit(limit + 1)
            raise ValueError("what came of it")

    with pytest.raises(AmbientInput, match="flax_return_frozendict") as told:
        change()
    assert isinstance(told.value.__cause__, ValueError)
    assert (flax.config.flax_return_frozendict, asserts.DISABLE_ASSERTIONS) == (False, False)
    assert sys.getrecursionlimit() == limit


def test_what_is_raised_where_nothing_changes_stays(chex):
    with pytest.raises(ValueError, match="as ever"), library_state.entered(()):
        raise ValueError("as ever")
