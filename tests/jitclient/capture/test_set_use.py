"""Which code can observe the order of a set, by its bytecode."""

import types

import pytest

from jitclient.capture.graph.set_use import SEEDED, UNKNOWN, uses_of_order

NAMES = {"a", "b"}


def _kind(fun):
    """The worse kind of set whose order the function may observe; NAMES is one that the hash seed orders."""

    def order_of(constant):
        return None if all(isinstance(item, int) for item in constant) else SEEDED

    kinds = {kind for kind, _ in uses_of_order([fun.__code__], {"NAMES": SEEDED}, order_of)}
    return UNKNOWN if UNKNOWN in kinds else SEEDED if kinds else None


def _unseen(d):
    if set(d) - NAMES:
        raise ValueError(f"not known: {set(d) - NAMES}, only {', '.join(NAMES)}")
    seen = set()
    for name in d:
        if name in seen and name not in {"x", "y", "z"} and len(NAMES) > 1:
            return name
        seen.add(name)
    return [d[n] for n in {1, 2, 3}] + sorted(NAMES | {"c"}) + [len({n[0] for n in d})]


def _typed(d):
    def inner(names: set[str] | frozenset = frozenset()) -> set:
        return sorted(names)

    return isinstance(d, (set, frozenset)), isinstance(d, set), inner


def _local(d):
    names = NAMES
    return [d[n] for n in names]


def _later(d):
    def inner():
        return [d[n] for n in names]

    names = {"a", "b", "c"}
    return inner()


def _changed(d):
    names = {"a", "b"}
    names.add(d)
    return list(names)


def _either(d):
    return list(NAMES if d else ())


@pytest.mark.parametrize(
    "fun",
    [
        _unseen,
        _typed,
        lambda d: sorted(set(d["k"])),
        lambda d: {k: v for k, v in d.items()},  # noqa: C416
        lambda d: d["x"] in {"relu", "tanh"},
        lambda d: d - 3 | 4,
        lambda d: set(d) >= NAMES and set(d) == NAMES and not NAMES,
        lambda d: NAMES.isdisjoint(d) or NAMES.issubset(d.keys()),
        lambda d: any(NAMES) and bool(NAMES),
        lambda d: d.keys() == NAMES,
    ],
)
def test_code_that_does_not_observe_any(fun):
    assert _kind(fun) is None


@pytest.mark.parametrize(
    "fun",
    [
        lambda d: [d[k] for k in NAMES],
        lambda d: [d[k] for k in {"a", "b", "c"}],
        lambda d: sum(d[k] for k in NAMES if k != "a"),
        lambda d: list(NAMES.union({"c", "d"})),
        lambda d: " ".join(NAMES),
        lambda d: d(NAMES),
        lambda d: {n: k for n, k in enumerate(NAMES - {"a"})},  # noqa: C416
        lambda d: [*NAMES],
        lambda d: print(f"{NAMES}"),
        _local,
        _later,
        _either,
    ],
)
def test_code_that_observes_one_that_the_hash_seed_orders(fun):
    assert _kind(fun) == SEEDED


@pytest.mark.parametrize(
    "fun",
    [
        lambda d: tuple(frozenset(d)),
        lambda d: [d[k] for k in d.keys() & {"a", "b"}],
        lambda d: {v for v in d},  # noqa: C416
        lambda d: list(map(set, d)),
        lambda d: {*d, *NAMES}.pop(),
        lambda d: sorted({k for k in d}, key=len),  # noqa: C416
        lambda d: [k for k in set(d) | NAMES],  # noqa: C416
        lambda d: set.union(*d),
        lambda d: list((lambda: {k for k in d})()),  # noqa: C416
        _changed,
    ],
)
def test_code_that_observes_one_whose_order_nothing_tells(fun):
    assert _kind(fun) == UNKNOWN


def test_each_place_where_code_is_nested_is_read():
    def outer(d):
        class Inner:
            def method(self):
                return list(NAMES)

        return Inner

    assert isinstance(outer, types.FunctionType)
    assert _kind(outer) == SEEDED
