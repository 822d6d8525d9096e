"""A value of a trace that traced code keeps is warned of in the client, where it would be a leaked tracer."""

import warnings

import numpy as np
import pytest

import jitclient

seen = []
by_name = {}
last = None


class Logger:
    def __init__(self):
        self.value = None


logger = Logger()


def appends(x):
    seen.append(x * 2)
    return x + 1


def stores(x):
    by_name["x"] = x * 2
    return x + 1


def rebinds(x):
    global last
    last = x * 2
    return x + 1


def sets_an_attribute(x):
    logger.value = x * 2
    return x + 1


def in_a_closure():
    own = []

    def appends_to_its_own(x):
        own.append(x)
        return x + 1

    return appends_to_its_own


LEAKS = {
    "the global 'seen'": appends,
    "the global 'by_name'": stores,
    "the global 'last'": rebinds,
    "'value' of a Logger": sets_an_attribute,
    "a list": in_a_closure(),
}


@pytest.mark.usefixtures("daemon")
@pytest.mark.parametrize(("where", "fun"), LEAKS.items(), ids=[fun.__name__ for fun in LEAKS.values()])
def test_what_keeps_a_value_is_named(where, fun):
    for _ in range(2):  # also where the program is found
        jitted = jitclient.jit(fun)
        with pytest.warns(RuntimeWarning, match=f"keeps a value of its trace in {where}"):
            assert jitted(np.float32(1)).item() == 2
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            jitted(np.float32(1))
    assert (seen, by_name, last) == ([], {}, None)
