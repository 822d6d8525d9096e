"""Which functions are the user's, also inside what wraps functions; every search for them ends."""

import functools
from typing import Any

import jax
import pytest

from jitclient.capture.user_code.ownership import functions_in, is_user_function


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
