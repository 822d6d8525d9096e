"""Which functions are the user's, also inside what wraps functions; every search for them ends."""

import functools
import sys
from pathlib import Path
from typing import Any

import jax
import pytest

from jitclient.capture.user_code import installed
from jitclient.capture.user_code.names import home_of
from jitclient.capture.user_code.ownership import functions_in, is_user_class, is_user_function


def function(x: Any) -> Any:
    return x


class Holder:
    def method(self, x: Any) -> Any:
        return x


class Endless:
    """A proxy that has every attribute, which is a new proxy."""

    def __getattr__(self, name: str) -> "Endless":
        return Endless()


def partial_of_itself() -> Any:
    one = functools.partial(function)
    one.__setstate__((one, (), {}, {}))
    return one


@pytest.mark.parametrize(
    "wrapped",
    [
        function,
        Holder().method,
        functools.partial(functools.partial(function), 1),
        jax.tree_util.Partial(function),
        functools.cached_property(Holder.method),
        functools.partialmethod(function, 1),
    ],
)
def test_user_functions_in_wrappers(wrapped: Any) -> None:
    assert is_user_function(wrapped)


@pytest.mark.parametrize("other", [len, jax.numpy.sin, jax.tree_util.tree_map, Holder, Holder(), Endless(), None])
def test_other_objects_are_no_user_functions(other: Any) -> None:
    assert not is_user_function(other)


def test_wrappers_that_wrap_themselves() -> None:
    assert not is_user_function(partial_of_itself())
    assert list(functions_in(partial_of_itself())) == []

    def itself() -> None: ...

    itself.__wrapped__ = itself  # type: ignore[attr-defined]
    assert list(functions_in(itself)) == [itself]


def test_all_functions_of_a_property() -> None:
    both = property(Holder.method, function)
    assert list(functions_in(both)) == [Holder.method, function]
    assert list(functions_in(classmethod(functools.partial(function)))) == [function]


def test_a_class_is_of_its_package_whatever_module_it_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    made = "def make():\n    class Made: pass\n    return Made"
    text = f"class Exported: pass\nExported.__module__ = 'mf_named.later'\n{made}"
    (folder / "mf_named.py").write_text(text)
    monkeypatch.syspath_prepend(folder)
    named = __import__("mf_named")
    try:
        assert home_of(named.Exported) == ("mf_named", "Exported")
        assert [is_user_class(cls) for cls in (named.Exported, named.make())] == [False, True]
    finally:
        del sys.modules["mf_named"]
        for function in (installed.is_user_module, installed.package_of):
            function.cache_clear()
