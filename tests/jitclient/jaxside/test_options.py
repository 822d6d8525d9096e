"""The keywords of jit have JAX's meaning: compared with what jax.jit makes of them."""

from typing import Any

import jax
import pytest

import jitclient
from jitclient.jaxside import original_jit
from jitclient.jaxside.options import JitOptions


def fun(a: Any, b: Any, c: Any = 1, *, d: Any = 2) -> Any:
    return a, b, c, d


def positional_only(a: Any, /, b: Any) -> Any:
    return a, b


def open_ended(a: Any, *rest: Any, **more: Any) -> Any:
    return a, rest, more


GIVEN = [
    {},
    {"static_argnums": 1},
    {"static_argnums": (0, -1)},
    {"static_argnames": "c"},
    {"static_argnames": ("c", "d")},
    {"static_argnums": 0, "static_argnames": "d"},
    {"donate_argnums": (1,)},
    {"donate_argnames": ["a"]},
]


@pytest.mark.parametrize("given", GIVEN, ids=repr)
def test_numbers_and_names_complete_each_other_as_in_jax(given: dict[str, Any]) -> None:
    ours, theirs = JitOptions.of(fun, given), jax.jit(fun, **given)._jit_info  # type: ignore[attr-defined]
    assert {n % 3 for n in ours.static_argnums} == {n % 3 for n in theirs.static_argnums}
    assert set(ours.static_argnames) == set(theirs.static_argnames)
    assert set(ours.donate_argnums) == set(theirs.donate_argnums)
    assert set(ours.donate_argnames) == set(theirs.donate_argnames)


def test_positional_only_arguments_have_no_name() -> None:
    assert JitOptions.of(positional_only, {"static_argnums": 0}).static_argnames == ()


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"static_argnums": 3}, ValueError),
        ({"static_argnames": "missing"}, ValueError),
        ({"static_argnums": "a"}, TypeError),
        ({"static_argnames": 1}, TypeError),
        ({"nonsense": 1}, TypeError),
        ({"static_argnums": 0, "donate_argnums": 0}, ValueError),
        ({"static_argnames": "d", "donate_argnames": ("d",)}, ValueError),
    ],
)
def test_mistakes_are_refused_as_jax_refuses_them(given: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        jax.jit(fun, **given)
    with pytest.raises(error):
        JitOptions.of(fun, given)


def test_an_unknown_keyword_is_refused_in_the_words_of_jax() -> None:
    said = []
    for jit in (jax.jit, jitclient.jit):
        for given in ((fun,), ()):
            with pytest.raises(TypeError) as error:
                jit(*given, nonsense=1)
            said.append(str(error.value))
    assert set(said) == {"jit() got an unexpected keyword argument 'nonsense'"}


def test_a_keyword_that_only_older_versions_of_jax_have_is_refused_as_jax_refuses_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def newer_jit(fun: Any, /, *, in_shardings: Any = None) -> Any:
        return fun

    monkeypatch.setattr(original_jit, "_found", [newer_jit])
    jitclient.jit(fun, in_shardings=jax.devices()[0])
    with pytest.raises(TypeError, match=r"newer_jit\(\) got an unexpected keyword argument 'backend'"):
        jitclient.jit(fun, backend="cpu")


@pytest.mark.parametrize("names", [("a", "b"), ("rest", "b")])
def test_arguments_that_have_no_name_in_a_call_are_refused(names: tuple[str, ...]) -> None:
    def mixed(a: Any, /, b: Any, *rest: Any, **more: Any) -> Any:
        return a, b, rest, more

    for make in (
        lambda: jax.jit(mixed, static_argnames=names),
        lambda: JitOptions.of(mixed, {"static_argnames": names}),
    ):
        with pytest.raises(ValueError, match=names[0]):
            make()


def test_what_is_no_plain_function_is_refused() -> None:
    def generator() -> Any:
        yield 1

    for fun, error in ((generator, "generator function"), (staticmethod(fun_of_two), "staticmethod")):
        for make in (lambda fun=fun: jax.jit(fun), lambda fun=fun: JitOptions.of(fun, {})):
            with pytest.raises(TypeError, match=error):
                make()


def fun_of_two(a: Any, b: Any) -> Any:
    return a, b


class NoSignature:
    @property
    def __signature__(self) -> Any:
        raise TypeError("no signature")

    def __call__(self, *args: Any) -> Any:
        return args


def test_names_of_what_has_no_signature_cannot_be_donated() -> None:
    for make in (
        lambda: jax.jit(NoSignature(), donate_argnames="a"),
        lambda: JitOptions.of(NoSignature(), {"donate_argnames": "a"}),
    ):
        with pytest.raises(ValueError, match="Getting the signature of function"):
            make()


def test_open_ended_functions_take_any_number_and_name() -> None:
    options = JitOptions.of(open_ended, {"static_argnums": 5, "static_argnames": "z"})
    assert options.static_argnums == (5,)
    assert options.static_argnames == ("z",)


def test_splitting_a_call() -> None:
    options = JitOptions.of(fun, {"static_argnums": 1, "static_argnames": "d"})
    dynamic, keywords, statics = options.split((1, "s", 3), {"d": "t"})
    assert (dynamic, keywords, statics) == ((1, 3), {}, ((1, "s"), ("d", "t")))


def test_negative_numbers_count_from_the_end_of_the_call() -> None:
    options = JitOptions.of(open_ended, {"static_argnums": -1})
    assert options.split((1, 2, 3), {})[2] == ((2, 3),)


def test_a_static_argument_must_be_hashable() -> None:
    with pytest.raises(ValueError, match="Non-hashable static arguments"):
        JitOptions.of(fun, {"static_argnums": 0}).split(([],), {})


def test_only_what_differs_from_the_defaults_is_given() -> None:
    assert JitOptions.of(fun, {"keep_unused": True, "inline": False}).given() == {"keep_unused": True}
