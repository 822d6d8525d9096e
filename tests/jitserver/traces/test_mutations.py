"""Mutations of captured objects during a trace: the client warns of them, and its own objects do not change."""

import functools
import warnings
from collections import Counter, defaultdict

import jax.numpy as jnp
import numpy as np
import pytest

import jitclient

shapes: list[tuple[int, ...]] = []
by_kind: Counter[str] = Counter()
groups: dict[str, list[int]] = {"a": []}
names: set[str] = set()
count = 0
table_cache: dict[int, int] = {}
defaults: defaultdict[str, list[int]] = defaultdict(list)
_lazy = None


class Base:
    @functools.cached_property
    def size(self):
        return 3


class Meter(Base):
    total = 0

    def __init__(self):
        self.calls = 0
        self.inner = None
        self.entered = False
        self._table = None


meter, outer = Meter(), Meter()
outer.inner = meter


def counts(x):
    global count
    count += 1
    return x + 1


def counts_on_an_object(x):
    meter.calls += 1
    return x + 1


def counts_on_an_object_of_an_object(x):
    outer.inner.calls = outer.inner.calls + 1
    return x + 1


def adds_an_attribute(x):
    meter.shape = jnp.shape(x)
    return x + 1


def counts_on_a_class(x):
    Meter.total += 1
    return x + 1


def counts_on_itself(x):
    counts_on_itself.calls += 1
    return x + 1


counts_on_itself.calls = 0


def appends(x):
    shapes.append(jnp.shape(x))
    return x + 1


def appends_further_in(x):
    groups["a"].append(1)
    return x + 1


def counts_by_kind(x):
    by_kind["float"] += 1
    return x + 1


def adds_to_a_set(x):
    names.add("x")
    return x + 1


def in_a_closure():
    calls = 0

    def rebinds(x):
        nonlocal calls
        calls += 1
        return x + 1

    return rebinds


def with_a_default(x, seen=[]):  # noqa: B006
    seen.append(1)
    return x + 1


CHANGES = {
    "the global 'count'": counts,
    "'calls' of a Meter": counts_on_an_object,
    "'calls' of a Meter ": counts_on_an_object_of_an_object,
    "'shape' of a Meter": adds_an_attribute,
    "'total' of the class Meter": counts_on_a_class,
    "'calls' of the function counts_on_itself": counts_on_itself,
    "the global 'shapes'": appends,
    "the global 'groups'": appends_further_in,
    "the global 'by_kind'": counts_by_kind,
    "the global 'names'": adds_to_a_set,
    "the variable 'calls' around rebinds": in_a_closure(),
    "the default 'seen' of with_a_default": with_a_default,
}


@pytest.mark.usefixtures("daemon")
@pytest.mark.parametrize(("what", "fun"), CHANGES.items(), ids=[fun.__name__ for fun in CHANGES.values()])
def test_mutations_are_named(what, fun):
    for _ in range(2):  # also if the program is found
        jitted = jitclient.jit(fun)
        with pytest.warns(RuntimeWarning, match=f"changes {what.strip()} while it is traced"):
            assert jitted(np.float32(1)).item() == 2
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            jitted(np.float32(1))


def fills_caches(x):
    global _lazy
    _lazy = 5
    table_cache[3] = 4
    meter._table = [1, 2]
    return x + meter.size - 2


def puts_everything_back(x):
    meter.entered = True
    meter.calls += 1
    shapes.append(3)
    try:
        return x + 1
    finally:
        shapes.pop()
        meter.calls -= 1
        meter.entered = False


def changes_its_own(x):
    own = Meter()
    own.calls += 1
    held = [own]
    held.append(own)
    return x + own.calls


@pytest.mark.usefixtures("daemon")
@pytest.mark.parametrize("fun", [fills_caches, puts_everything_back, changes_its_own])
def test_no_warning_for(fun):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert jitclient.jit(fun)(np.float32(1)).item() == 2
