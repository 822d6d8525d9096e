"""Uses of a jitted function besides calling it, and odd calls: the same as with jax.jit."""

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.random import define_prng_impl

import jitclient

BOTH = [jax.jit, jitclient.jit]
pytestmark = pytest.mark.usefixtures("daemon")


NUMBERS = itertools.count(1)


class Incomparable:
    def __hash__(self) -> int:
        return 1

    def __eq__(self, other: object) -> bool:
        raise NotImplementedError("no such thing")


@pytest.mark.parametrize("jit", BOTH)
@pytest.mark.parametrize("by", ["number", "name"])
def test_statics_that_cannot_be_compared_are_an_error_that_says_so(jit: Any, by: str) -> None:
    jitted = jit(lambda x, how: x, static_argnums=1)
    x = (1,) * next(NUMBERS)  # JAX compares static arguments of other functions, too, if the others are alike

    def call() -> None:
        jitted(x, Incomparable()) if by == "number" else jitted(x, how=Incomparable())

    call()
    with pytest.raises(ValueError, match=r"static arguments should be comparable using __eq__(.|\n)*no such thing"):
        call()


def test_statics_of_a_program_that_was_found_are_compared(own: Any) -> None:
    program = """
        import json, jitclient

        class Incomparable:
            __hash__ = lambda self: 1
            __eq__ = lambda self, other: 1 / 0

        f, said = jitclient.jit(lambda x, how: x, static_argnums=1), []
        f(1.0, Incomparable())
        try:
            f(1.0, Incomparable())
        except ValueError as error:
            said.append(str(error)[:33])
        print(json.dumps(said))
    """
    with own.serving():
        for _ in range(2):
            assert own.run(program, JITSERVER_FALLBACK="local") == ["static arguments should be compar"]


class Unnamable:
    def __call__(self, x: Any) -> Any:
        return x

    def __repr__(self) -> str:
        raise ValueError("no name")


def test_it_is_shown_as_in_jax() -> None:
    def fun(x: Any) -> Any:
        return x

    assert repr(jitclient.jit(fun)) == repr(jax.jit(fun))
    assert repr(jitclient.jit(Unnamable())) == repr(jax.jit(Unnamable()))


@pytest.mark.parametrize("jit", BOTH)
def test_its_shapes_depend_on_static_arguments(jit: Any) -> None:
    rows = jit(lambda x, n: x.reshape(n, -1), static_argnums=1)

    def whole(x: Any) -> Any:
        return jnp.zeros(jax.eval_shape(rows, x, 3).shape)

    assert jax.eval_shape(rows, np.ones(6), 2).shape == (2, 3)
    assert jit(whole)(np.ones(6)).shape == jax.eval_shape(whole, np.ones(6)).shape == (3, 2)
    with pytest.raises(ValueError, match="Non-hashable static arguments"):
        jax.eval_shape(rows, np.ones(6), [2])


@pytest.mark.parametrize("jit", BOTH)
def test_its_programs_can_be_counted(jit: Any) -> None:
    jitted = jit(lambda x: x * 1.5)
    sizes = [jitted._cache_size()]
    for argument in (np.ones(2), np.zeros(2), np.ones(3)):
        jitted(argument)
        sizes.append(jitted._cache_size())
    jitted.clear_cache()
    assert [*sizes, jitted._cache_size()] == [0, 1, 1, 2, 0]


@pytest.mark.parametrize("jit", BOTH)
def test_under_no_tracing_only_what_was_called_before_can_be(jit: Any) -> None:
    jitted = jit(lambda x: x * 2.5)
    known, new = np.ones(2, np.float32), np.ones(3, np.float32)
    jitted(known)
    with jax.no_tracing():
        assert jitted(known).tolist() == [2.5, 2.5]
        with pytest.raises(RuntimeError, match="no_tracing"):
            jitted(new)
        with pytest.raises(RuntimeError, match="no_tracing"):
            jitted.lower(new).compile()
    assert jitted(new).tolist() == [2.5, 2.5, 2.5]


@pytest.mark.parametrize("jit", BOTH)
def test_under_no_execution_nothing_runs(jit: Any) -> None:
    jitted = jit(lambda x: x * 3.5)
    x = np.ones(2, np.float32)
    jitted(x)
    with jax.no_execution(), pytest.raises(RuntimeError, match="no_execution"):
        jitted(x)
    assert jitted(x).tolist() == [3.5, 3.5]


@pytest.mark.parametrize("jit", BOTH)
@pytest.mark.parametrize("show", [repr, str, "{}".format])
def test_a_deleted_array_is_not_shown(jit: Any, show: Callable[[Any], str]) -> None:
    array = jit(lambda x: x + 1)(np.ones(3, np.float32))
    array.delete()
    with pytest.raises(RuntimeError, match=r"Array has been deleted with shape=float32\[3\]"):
        show(array)


def _update(ref: Any, x: Any) -> Any:
    ref[...] += x
    return ref[...] * 2


def _lowered(jit: Any) -> Any:
    return np.asarray("token" in jit(lambda x, token: x).lower(np.float32(1), jax.lax.create_token()).as_text())


OWN_KEY = jax.random.key(
    1,
    impl=define_prng_impl(
        key_shape=(2,),
        seed=lambda seed: jnp.full((2,), seed).astype("uint32"),
        split=lambda key, shape: jnp.broadcast_to(key, (*shape, 2)),
        random_bits=lambda key, width, shape: jnp.full(shape, 5, "uint32"),
        fold_in=lambda key, data: key + jnp.uint32(data),
        name="own",
        tag="fry",  # as jax's own threefry
    ),
)

OF_ONE_PROCESS = {
    "an argument has keys of": lambda jit: jit(lambda key: jax.random.bits(key, (3,)))(OWN_KEY),
    r"key<fry>\[\]": lambda jit: jax.random.key_data(
        jit(lambda data: jax.random.wrap_key_data(data, impl=OWN_KEY.dtype._impl))(np.uint32([1, 2]))
    ),
    "a Ref": lambda jit: jit(_update)(jax.new_ref(jnp.zeros(3)), np.float32(1)),
    "a Token": lambda jit: jit(lambda x, token: x)(np.float32(1), jax.lax.create_token()),
    "Token, which lives": _lowered,
    "AbstractToken": lambda jit: jit(lambda x: (x, jax.lax.create_token()))(np.float32(1))[0],
    "float0": lambda jit: jit(lambda x: x)(np.zeros(3, jax.dtypes.float0)),
    r"float0\[\]": lambda jit: jit(jax.grad(lambda x: x * 2.0, allow_int=True))(3),
}


@pytest.mark.parametrize("what", list(OF_ONE_PROCESS))
def test_what_only_one_process_can_hold_is_no_users_mistake(what: str) -> None:
    with pytest.raises(jitclient.CaptureError, match=what):
        OF_ONE_PROCESS[what](jitclient.jit)


def test_what_only_one_process_can_hold_runs_here(own: Any) -> None:
    program = f"""
        import json, sys, warnings
        sys.path.insert(0, {__file__.rpartition("/")[0]!r})
        import jax, numpy as np, jitclient
        from test_like_jit import OF_ONE_PROCESS

        differ = []
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for what, use in OF_ONE_PROCESS.items():
                if np.asarray(use(jax.jit)).tobytes() != np.asarray(use(jitclient.jit)).tobytes():
                    differ.append(what)
        said = [str(one.message) for one in caught if "runs in this process" in str(one.message)]
        print(json.dumps([differ, len(said) - len(OF_ONE_PROCESS)]))
    """
    with own.serving():
        found = own.run(program, JITSERVER_FALLBACK="local")
    assert found == [[], 0]
