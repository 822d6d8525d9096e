"""A value of a trace that traced code keeps is warned of in the client; a name, a variable or an attribute has a leaked
tracer there, as under `jax.jit`.
"""

import warnings

import jax
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
def test_the_place_of_a_leaked_tracer_is_named(where, fun):
    for _ in range(2):  # also if the program is found
        _begin_anew()
        jitted = jitclient.jit(fun)
        with pytest.warns(RuntimeWarning, match=f"keeps a value of its trace in {where}"):
            assert jitted(np.float32(1)).item() == 2
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            jitted(np.float32(1))
    assert (seen, by_name) == ([], {})
    _begin_anew()


def _begin_anew():
    global last
    last = logger.value = None


key = jax.random.key(0)


def splits(x):
    global key
    key, mine = jax.random.split(key)
    return jax.random.normal(mine) + x


def in_a_variable():
    key = jax.random.key(1)

    def splits(x):
        nonlocal key
        key, mine = jax.random.split(key)
        return jax.random.normal(mine) + x

    return splits, lambda: key


class Model:
    def __init__(self):
        self.state = {"key": jax.random.key(2), "count": 0}

    def splits(self, x):
        key, mine = jax.random.split(self.state["key"])
        self.state = {"key": key, "count": self.state["count"] + 1}
        return jax.random.normal(mine) + x


def _places():
    """A function that splits a key in each place where a program may have one, and a function that reads the key."""
    variable, of_variable = in_a_variable()
    model = Model()
    return [(splits, lambda: key), (variable, of_variable), (model.splits, lambda: model.state["key"])]


@pytest.mark.usefixtures("daemon")
@pytest.mark.filterwarnings("ignore:.* keeps a value of its trace")
@pytest.mark.parametrize("jit", [jax.jit, jitclient.jit])
@pytest.mark.parametrize("place", range(3), ids=["global", "variable", "attribute"])
def test_a_key_that_was_split_in_a_trace_is_unusable_afterwards(jit, place, monkeypatch):
    monkeypatch.setitem(globals(), "key", key)
    fun, look = _places()[place]
    jitted = jit(fun)
    first = float(jitted(0.0))
    assert float(jitted(0.0)) == first  # it is not traced again
    assert jax.dtypes.issubdtype(look().dtype, jax.dtypes.prng_key)
    uses = [lambda: jax.random.normal(look()), lambda: jit(lambda key: key)(look()), lambda: jitted(np.ones(2))]
    for use in uses:
        with pytest.raises(jax.errors.UnexpectedTracerError, match=f"(?s)normal|{fun.__name__}"):
            use()
    assert float(jitted(0.0)) == first


@pytest.mark.usefixtures("daemon")
@pytest.mark.filterwarnings("ignore:.* keeps a value of its trace")
@pytest.mark.parametrize("jit", [jax.jit, jitclient.jit])
def test_a_program_is_used_until_what_it_read_is_rebound(jit, monkeypatch):
    monkeypatch.setitem(globals(), "key", key)
    reads = jit(lambda x: jax.random.normal(key) + x)
    before = float(reads(0.0))
    jit(lambda x: splits(x))(0.0)
    assert float(reads(0.0)) == before
    with pytest.raises(jax.errors.UnexpectedTracerError):
        reads(np.ones(3))
    monkeypatch.setitem(globals(), "key", jax.random.key(9))
    assert reads(np.ones(4)).shape == (4,)


PROGRAM = """
    import json, sys, warnings
    import numpy as np
    import jitclient
    import jax

    key = jax.random.key(0)

    @jitclient.jit
    def splits(x):
        global key
        key, mine = jax.random.split(key)
        return jax.random.normal(mine) + x

    warnings.simplefilter("ignore")
    before = float(splits(0.0))
    try:
        found = jax.random.normal(key)
    except jax.errors.UnexpectedTracerError as error:
        found = "splits" in str(error)
    print(json.dumps([before, found]))
"""


def test_a_program_from_the_disk_leaks_the_same(new_daemon, short_path, run_script, counts):
    address = f"unix:{short_path}/d.sock"
    environment = {"JITSERVER_ADDRESS": address, "JITSERVER_CACHE_DIR": str(short_path / "cache")}
    found, traces = [], []
    for _ in range(2):
        with new_daemon(address, env=environment):
            found.append(run_script(PROGRAM, env=environment))
            traces.append(counts(address)["traces"])
    assert found[0] == found[1]
    assert found[0][1] is True
    assert traces == [1, 0]
