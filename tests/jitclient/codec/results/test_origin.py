"""Tokens for what only a trace knows."""

import copy
import functools
from typing import Any

import pytest

from jitclient.codec.capture import capture
from jitclient.codec.results.origin import Opaque, Origin
from jitclient.errors import CaptureError


class Held:
    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def get(self) -> Any:
        return self.inner


class Real:
    eqns = ("sin", "mul")


def origin_of(structure: Any, real: Any, traces: list[Any] | None = None) -> Origin:
    def trace() -> Any:
        if traces is not None:
            traces.append(real)
        return real

    origin = Origin("a" * 32, ("jax",), trace)
    origin.structure = structure(origin)
    return origin


def closing(inner: Any) -> Any:
    return lambda default=inner: inner


@pytest.mark.parametrize(
    "around",
    [
        lambda part: (1, [part]),
        lambda part: {"key": part},
        lambda part: functools.partial(max, part, key=1),
        lambda part: Held(Held(part)),
        lambda part: closing(part),
        lambda part: Held(part).get,
    ],
)
def test_a_token_has_what_the_trace_has_there(around: Any) -> None:
    real, traces = Real(), list[Any]()
    origin = origin_of(lambda origin: around(origin.token(0)), around(real), traces)
    token = origin.token(0)
    assert traces == []
    assert token.eqns is token.eqns is Real.eqns
    assert len(traces) == 1
    with pytest.raises(AttributeError, match="no_such_thing"):
        token.no_such_thing


def test_what_the_trace_has_not_is_an_error_of_capture() -> None:
    token = origin_of(lambda origin: [origin.token(0)], []).token(0)
    with pytest.raises(CaptureError, match="has not what the daemon's had"):
        token.eqns


def test_tokens_are_equal_by_name_and_cost_no_trace_to_compare_copy_or_show() -> None:
    traces: list[Any] = []
    one, other = (origin_of(lambda origin: origin.token(0), Real(), traces) for _ in range(2))
    assert one.token(0) == other.token(0)
    assert hash(one.token(0)) == hash(other.token(0))
    assert one.token(0) != one.token(1)
    assert one.token(0) is one.token(0) is copy.copy(one.token(0)) is copy.deepcopy(one.token(0))
    assert "part 0" in repr(one.token(0))
    assert traces == []


def test_a_capture_names_it_and_says_that_no_daemon_can_make_it() -> None:
    def fun_of(token: Opaque) -> Any:
        return lambda x: token.eqns

    origin = origin_of(lambda origin: origin.token(0), Real())
    first, again, second = (capture(fun_of(origin.token(number))) for number in (0, 0, 1))
    assert first.key == again.key != second.key
    assert first.has_opaque
    assert not capture(lambda x: x).has_opaque
    assert "jax" in first.packages


def test_tokens_among_short_lived_objects_are_all_found() -> None:
    jax = pytest.importorskip("jax")

    class Box:
        def __init__(self, part: Any) -> None:
            self.part = part

    jax.tree_util.register_pytree_node(Box, lambda box: ((), (box.part,)), lambda aux, _: Box(*aux))

    def trees_of(parts: list[Any]) -> list[Any]:
        return [jax.tree.structure([Box(part)]) for part in parts]

    real = [Real() for _ in range(40)]
    origin = origin_of(lambda origin: trees_of([origin.token(number) for number in range(40)]), trees_of(real))
    assert all(origin.token(number).eqns is Real.eqns for number in range(40))
