"""Random calls: a call plan sends, returns and raises what the general path would, or leaves the call to it."""

import collections
import dataclasses
import enum
import sys
from collections.abc import Callable
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jitclient
from jitclient import Array
from jitclient.calls import copies
from jitclient.calls.general_path import GeneralPath
from jitclient.session import process
from jitclient.session.session import Session

SCALE = 2.0
LARGE = 9_000  # numbers of an array that is not sent within a message


class Colour(enum.IntEnum):
    RED = 1


class Word(str):
    """Equal to the word itself, and of another type."""


def step(*args: Any, n: Any = 1, **kwargs: Any) -> Any:
    leaves = jax.tree.leaves((args, kwargs))
    total = sum(jnp.sum(_number(leaf)) for leaf in leaves) * (len(n) if isinstance(n, (str, tuple)) else n) * SCALE
    return {"total": total, "next": jnp.full(3, jnp.real(total), jnp.float32), "given": (args, kwargs)}


def step_after(n: Any, *args: Any, **kwargs: Any) -> Any:
    return step(*args, n=n, **kwargs)


def _number(leaf: Any) -> Any:
    is_key = jnp.issubdtype(jnp.result_type(leaf), jax.dtypes.prng_key)
    return jax.random.uniform(leaf) if is_key else leaf


FUNCTIONS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "plain": (step, {}),
    "static-name": (step, {"static_argnames": "n"}),
    "static-place": (step_after, {"static_argnums": 0}),
    "donates": (step, {"donate_argnums": 0}),
}

FAMILIES: list[dict[str, Callable[[int], Any]]] = [
    {
        "result": lambda v: None,  # of the latest call
        "there": lambda v: jitclient.device_put(np.full(3, v, np.float32)),
        "there, integers": lambda v: jitclient.device_put(np.full(3, v, np.int32)),
        "there, another shape": lambda v: jitclient.device_put(np.full((1, 3), v, np.float32)),
        "there, scalar": lambda v: jitclient.device_put(np.float32(v)),
        "there, weak": lambda v: jitclient.device_put(float(v)),
    },
    {
        "float32": lambda v: np.full(3, v, np.float32),
        "float64": lambda v: np.full(3, v, np.float64),
        "bfloat16": lambda v: np.full(3, v, jnp.bfloat16),
        "strided": lambda v: np.full((6, 6), v, np.float32)[::2, 3],
        "another shape": lambda v: np.full((1, 3), v, np.float32),
        "large": lambda v: np.full(LARGE, v, np.float32),
    },
    {
        "jax": lambda v: jnp.full(3, v, jnp.float32),
        "jax, integers": lambda v: jnp.full(3, v, jnp.int32),
        "jax, another shape": lambda v: jnp.full((1, 3), v, jnp.float32),
        "jax, scalar": lambda v: jnp.float32(v),
        "jax, weak": lambda v: jnp.asarray(float(v)),
        "jax, key": lambda v: jax.random.key(v),
        "jax, large": lambda v: jnp.full(LARGE, v, jnp.float32),
        "jax, committed": lambda v: jax.device_put(jnp.full(3, v, jnp.float32), jax.devices()[0]),
        "jax, deleted": lambda v: _deleted(jnp.full(3, v, jnp.float32)),
    },
    {
        "bool": lambda v: v > 2,
        "int": lambda v: v,
        "float": lambda v: float(v),
        "complex": lambda v: complex(v, v),
        "int of numpy": lambda v: np.int64(v),
        "float of numpy": lambda v: np.float64(v),
        "half of numpy": lambda v: np.float16(v),
        "int, too large": lambda v: v + (1 << 40),
        "member": lambda v: Colour.RED,
        "text": lambda v: str(v),
        "nothing": lambda v: None,
    },
]
"""Kinds of arguments. Those of a family differ in little, such as the dtype or the type."""
KINDS = {kind: make for family in FAMILIES for kind, make in family.items()}
ODD = {"jax, committed", "jax, deleted", "int, too large", "member", "text", "nothing"}
"""Kinds that no plan covers."""
STATICS = [1, 2, True, 2.0, "ab", Word("ab"), ("a", "b")]


def _deleted(array: Any) -> Any:
    array.delete()
    return array


@dataclasses.dataclass(frozen=True)
class Leaf:
    """An argument that each side makes for itself. Those with a name are made once."""

    kind: str
    value: int
    name: int | None = None


@dataclasses.dataclass(frozen=True)
class Request:
    """A call: trees of leaves, and what is static in it."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    static: Any


class Side:
    """A wrapper of a function, of two, with the messages that it sends."""

    def __init__(self, function: str, plans: bool) -> None:
        fun, self._options = FUNCTIONS[function]
        self.fn = jitclient.jit(fun, **self._options)
        self._plans = plans
        self._named: dict[Leaf, Any] = {}
        self.latest: Any = KINDS["there"](1)

    def make(self, leaf: Leaf) -> Any:
        if leaf.kind == "result":
            return self.latest
        if leaf.name is None:
            return KINDS[leaf.kind](leaf.value)
        if leaf not in self._named:
            self._named[leaf] = KINDS[leaf.kind](leaf.value)
        return self._named[leaf]

    def call(self, request: Request, sent: list[Any]) -> tuple[Any, ...]:
        """Makes a call; returns what it sent, what came of it, and what it did to its arguments."""
        args, kwargs = jax.tree.map(self.make, (request.args, request.kwargs), is_leaf=is_leaf)
        leaves = jax.tree.leaves((args, kwargs))
        if "static_argnums" in self._options:
            args = (request.static, *args)
        elif "static_argnames" in self._options:
            kwargs["n"] = request.static
        if not self._plans:
            self.fn.general_path().plans = ()
        del sent[:]
        try:
            result = self.fn(*args, **kwargs)
        except Exception as error:
            answer: Any = type(error), str(error)
        else:
            answer = jax.tree.map(_described, result), jax.tree.structure(result)
            self.latest = result["next"]
        places = {handle: n for n, leaf in reversed(list(enumerate(leaves))) for handle in _handles(leaf)}
        return [_without_handles(each, places) for each in sent], answer, [_is_deleted(leaf) for leaf in leaves]


def _described(leaf: Any) -> tuple[Any, ...]:
    where = leaf.committed, leaf.place if type(leaf) is Array else None
    value = np.asarray(jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf)
    return type(leaf), str(leaf.dtype), leaf.weak_type, leaf.shape, *where, value.dtype, value.tobytes()


def _is_deleted(leaf: Any) -> bool:
    return bool(getattr(leaf, "is_deleted", bool)())


def _handles(leaf: Any) -> list[int]:
    """The handles under which an argument may have been sent."""
    copy = copies.copy_of(leaf, process.session()) if isinstance(leaf, jax.Array) and type(leaf) is not Array else None
    return [each._handle for each in (leaf, copy) if type(each) is Array]


def _without_handles(sent: Any, places: dict[int, int]) -> Any:
    """Return a call in the form in which it was sent, with places of arguments for handles, which always differ."""
    executable, arguments, first, attached, fetch = sent
    given = [("argument", places.get(each, "unknown")) if type(each) is int else each for each in arguments]
    return executable, given, attached, [handle - first for handle in fetch]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The calls that a session is asked for: queued ones, and those that are waited for with what they fetch."""
    made: list[Any] = []
    run, call_later = Session.run, Session.call_later

    def recorded_run(session: Session, message: Any, attachments: Any = (), *rest: Any, **more: Any) -> Any:
        for call in message.calls:
            attached = [array.tobytes() for array in attachments]
            made.append((call.executable, list(call.arguments), call.results, attached, message.fetch))
        return run(session, message, attachments, *rest, **more)

    def recorded_later(session: Session, executable: int, arguments: Any, first: int, attached: Any, *rest: Any) -> Any:
        made.append((executable, list(arguments), first, [array.tobytes() for array in attached], ()))
        return call_later(session, executable, arguments, first, attached, *rest)

    monkeypatch.setattr(Session, "run", recorded_run)
    monkeypatch.setattr(Session, "call_later", recorded_later)
    return made


@pytest.fixture
def general(monkeypatch: pytest.MonkeyPatch) -> list[GeneralPath]:
    """The function of each call that goes the general way."""
    made: list[GeneralPath] = []
    call = GeneralPath.call
    monkeypatch.setattr(GeneralPath, "call", lambda path, *given: made.append(path) or call(path, *given))
    return made


def rarely(random: Random) -> bool:
    return random.random() < 0.05


def any_leaf(random: Random, kinds: list[str]) -> Leaf:
    kind = random.choice(kinds)
    is_named = kind == "jax, large" or random.random() < 0.2  # without a name, it would never have a copy
    return Leaf(kind, random.randint(1, 3), random.randrange(2) if is_named else None)


def any_tree(random: Random, kinds: list[str]) -> Any:
    leaf = any_leaf(random, kinds)
    match random.randrange(6):
        case 0:
            return {"b": leaf, "a": [any_leaf(random, kinds), None]}
        case 1:
            return (leaf, leaf)
    return leaf


def any_request(random: Random, donates: bool) -> Request:
    """A request that a plan may cover."""
    kinds = random.sample(sorted(KINDS.keys() - ODD), 3)
    args = tuple(any_tree(random, kinds) for _ in range(random.randint(1, 2)))
    if donates:
        args = (Leaf(random.choice(["result", "there"]), 1), *args)
    kwargs = {name: any_tree(random, kinds) for name in random.sample(["x", "y"], random.choice([0, 0, 1, 2]))}
    return Request(args, kwargs, random.choice(STATICS))


def another(random: Random, request: Request) -> Request:
    """A request that differs a little."""
    args, kwargs = list(request.args), dict(request.kwargs)
    place = random.randrange(len(args))
    match random.randrange(8):
        case 0:
            return dataclasses.replace(request, static=random.choice(STATICS))
        case 1:
            args = args[:-1] if len(args) > 1 else [*args, any_leaf(random, list(KINDS))]
        case 2:
            args[place] = random.choice([[args[place]], (args[place],), {"a": args[place]}])
        case 3 if kwargs:
            kwargs = {"z" if name == "x" else name: tree for name, tree in reversed(kwargs.items())}
        case 3 | 4:
            args[0] = args[-1]
        case _:
            args[place] = jax.tree.map(lambda leaf: akin(random, leaf), args[place], is_leaf=is_leaf)
    return Request(tuple(args), kwargs, request.static)


def akin(random: Random, leaf: Leaf) -> Leaf:
    return any_leaf(random, [*next(family for family in FAMILIES if leaf.kind in family)])


def is_leaf(tree: Any) -> bool:
    return type(tree) is Leaf


def again(random: Random, request: Request) -> Request:
    """A request with other values of the same kinds."""

    def renewed(leaf: Leaf) -> Leaf:
        return leaf if leaf.name is not None else dataclasses.replace(leaf, value=random.randint(1, 3))

    args, kwargs = jax.tree.map(renewed, (request.args, request.kwargs), is_leaf=is_leaf)
    return Request(args, kwargs, request.static)


@pytest.mark.usefixtures("daemon")
@pytest.mark.parametrize("examples", [3, pytest.param(30, marks=pytest.mark.slow)])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_call_plan_does_what_the_general_path_does(
    function: str,
    examples: int,
    sent: list[Any],
    general: list[GeneralPath],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import hypothesis.strategies as st  # where it is loaded, each collection reads all of our modules for constants
    from hypothesis import HealthCheck, Phase, given, settings

    seen: collections.Counter[str] = collections.Counter()

    @settings(
        deadline=None,
        derandomize=True,
        max_examples=examples,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
        database=None,
    )
    @given(st.randoms(use_true_random=True))
    def check(random: Random) -> None:
        planned, plain = Side(function, plans=True), Side(function, plans=False)
        base = request = any_request(random, function == "donates")
        for n in range(14):
            made, has_plans = len(general), bool(planned.fn.general_path().plans)
            if rarely(random):
                monkeypatch.setattr(sys.modules[__name__], "SCALE", SCALE + 1)
            with jax.enable_x64(rarely(random)):
                found, expected = (side.call(request, sent) for side in (planned, plain))
            assert found == expected, request
            is_planned = general[made] is not planned.fn.general_path()
            seen["by plan" if is_planned else "declined" if has_plans else "general"] += 1
            request = again(random, base if n < 3 or random.random() < 0.5 else another(random, base))

    check()
    assert min(seen["by plan"], seen["declined"]) > examples, seen
