"""Objects whose pickles forget, and other state that only the object itself has."""

import copyreg
import functools
import os
import random
import tempfile
import weakref
from collections import Counter, OrderedDict, deque
from fractions import Fraction
from pathlib import PurePosixPath

import jax.numpy as jnp
import numpy as np
from scipy.spatial import KDTree

X = np.arange(3, dtype=np.float32)
POINTS = np.random.default_rng(0).normal(size=(1000, 2))


class Tagged(np.ndarray):
    factor = 1.0

    def __new__(cls, values, factor):
        made = np.asarray(values, dtype=np.float32).view(cls)
        made.factor = factor
        return made

    def __array_finalize__(self, source):
        if source is not None:
            self.factor = getattr(source, "factor", 2.0)


TAGGED = Tagged([1, 2, 3], 5.0)


class Labelled(np.ma.MaskedArray):
    label = 1.0


class Scaled(KDTree):
    scale = 3.0

    def nearest(self, point):
        return self.scale * self.data[self.query(point)[1]]


class Named(KDTree):
    def __init__(self, points, weights):
        super().__init__(points)
        self.weights = weights

    def weight_at(self, point):
        return self.weights[self.query(point)[1]]


class DropsField:
    gain = 1.0

    def __init__(self):
        self.gain, self.offset = 4.0, 0.5

    def __getstate__(self):
        return {"offset": self.offset}


class DropsFunction:
    def __init__(self):
        self._apply = None

    def setup(self, factor):
        self._apply = lambda x: x * factor
        return self

    def __getstate__(self):
        return {**self.__dict__, "_apply": None}

    def __call__(self, x):
        if self._apply is None:
            raise ValueError("`setup` must be called first")
        return self._apply(x)


class ReducesToLess:
    def __init__(self, size):
        self.size, self.bias = size, 0.0

    def __reduce__(self):
        return ReducesToLess, (self.size,)


class RefusesState:
    def __init__(self):
        self.k = 2.5

    def __getstate__(self):
        return {"k": self.k}

    def __setstate__(self, state):
        raise RuntimeError("no copies")


class RefusesAll:
    def __init__(self):
        self.k = 3.5

    def __reduce_ex__(self, protocol):
        raise TypeError("cannot be pickled")


class Rereads:
    def __init__(self, path):
        self.path, self.k = path, 6.0

    def __getstate__(self):
        with open(self.path) as file:
            return {"path": self.path, "k": float(file.read())}


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self):
        self.a, self.b = 2.0, 7.0

    def __getstate__(self):
        return None, {"a": self.a}

    def __setstate__(self, state):
        self.a, self.b = state[1]["a"], 1.0


class KeepsFile:
    """Drops what no other process can have, as it should; nothing asks for it."""

    def __init__(self):
        self.k, self.file = 1.5, open(os.devnull)  # noqa: SIM115

    def __getstate__(self):
        return {"k": self.k}


class Rehashes:
    """Its hash differs between processes; a copy works it out again."""

    def __init__(self, names):
        self.names = names
        self._hash = hash(names)

    def __hash__(self):
        return self._hash

    def __eq__(self, other):
        return self.names == other.names

    def __reduce__(self):
        return Rehashes, (self.names,)


class Relinks:
    def __init__(self, children):
        self.children = children
        for child in children:
            child.parent = self

    def __getstate__(self):
        return {"children": self.children}

    def __setstate__(self, state):
        self.children = state["children"]
        for child in self.children:
            child.parent = self


class Child:
    pass


class Numbered:
    made = 0

    def __init__(self, k):
        Numbered.made += 1
        self.number, self.k = Numbered.made, k

    def __reduce__(self):
        return Numbered, (self.k,)


class Doubling(list):
    def __iter__(self):
        return (2 * item for item in list.__iter__(self))


class Once(dict):
    def __setitem__(self, key, value):
        super().__setitem__(key, value + 1)


class Ring(deque):
    def __init__(self, size, unit):
        super().__init__(maxlen=size)
        self.unit = unit


class Tally(Counter):
    unit = 1.0


class Ordered(OrderedDict):
    def __reduce__(self):
        return Ordered, ()


class Reversing(tuple):
    __slots__ = ()

    def __reduce__(self):
        return Reversing, (tuple(reversed(self)),)


class Ratio(Fraction):
    unit = 1.0


class Folder(PurePosixPath):
    unit = 1.0


class Registered:
    def __init__(self, k):
        self.k = k


copyreg.pickle(Registered, lambda made: (Registered, (0.0,)))


class Cached:
    def __init__(self, scale):
        self.scale = scale
        self.seen = 0

    @functools.cached_property
    def noise(self):
        return random.random()

    @functools.cached_property
    def total(self):
        return self.scale * 2

    @functools.cached_property
    def count(self):
        self.seen += 1
        return self.seen

    @functools.cached_property
    def vector(self):
        return np.full(3, self.scale, np.float32)


class Owner:
    def __init__(self, k):
        self.k = k


class Failure(Exception):
    pass


class Coded(Exception):
    def __init__(self, code, *, hint="none"):
        super().__init__(f"code {code}")
        self.code = code
        self.hint = hint


def case_array_subclass_in_closure(jit):
    tagged = Tagged([1, 2, 3], 5.0)
    return jit(lambda x: x * tagged.factor + np.asarray(tagged))(X)


def case_array_subclass_in_global(jit):
    return jit(lambda x: x * TAGGED.factor + jnp.asarray(TAGGED.view(np.ndarray)))(X)


def case_array_subclass_that_is_a_view(jit):
    part = Tagged([[1, 2], [3, 4]], 5.0).T
    return jit(lambda x: x * part.factor + part.shape[0] + float(part[0, 1]))(X)


def case_masked_array_subclass(jit):
    labelled = Labelled([1.0, 2.0, 3.0], mask=[False, True, False])
    labelled.label = 5.0
    return jit(lambda x: x * labelled.label + labelled.filled(7.0).astype(np.float32))(X)


def case_tree_subclass_with_a_default(jit):
    tree = Scaled(POINTS)
    return jit(lambda x: x[:2] * tree.nearest([0.1, 0.2]).astype(np.float32))(X)


def case_tree_subclass_with_attributes(jit):
    tree = Named(POINTS, np.arange(1000, dtype=np.float32))
    return jit(lambda x: x * tree.weight_at([0.1, 0.2]))(X)


def case_small_tree(jit):
    tree = KDTree(POINTS[:10])
    return jit(lambda x: x * tree.query([0.1, 0.2])[1])(X)


def case_large_tree(jit):
    tree = KDTree(POINTS)
    return jit(lambda x: x + np.stack(tree.query([[0.1, 0.2], [1.0, 1.0]], k=3)).astype(np.float32).sum())(X)


def case_tree_with_a_box(jit):
    tree = KDTree(POINTS % 1.0, leafsize=5, boxsize=1.0, balanced_tree=False)
    return jit(lambda x: x + len(tree.query_ball_point([0.1, 0.9], 0.2)) + tree.leafsize)(X)


def case_state_without_a_field(jit):
    made = DropsField()
    return jit(lambda x: x * made.gain + made.offset)(X)


def case_state_without_a_function(jit):
    made = DropsFunction().setup(3.0)
    return jit(lambda x: made(x))(X)


def case_reduction_that_loses(jit):
    made = ReducesToLess(2)
    made.bias = 5.0
    return jit(lambda x: x * made.size + made.bias)(X)


def case_state_that_is_refused(jit):
    made = RefusesState()
    return jit(lambda x: x * made.k)(X)


def case_reduction_that_raises_inside(jit):
    made = RefusesAll()
    return jit(lambda x: x * made.k)(X)


def case_state_read_from_a_file(jit):
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("8.0")
        file.flush()
        made = Rereads(file.name)
        made.path = "gone"  # so that processes can agree
        made.__dict__["path"] = file.name
        return jit(lambda x: x * made.k)(X)


def case_slots(jit):
    made = Slotted()
    return jit(lambda x: x * made.a + made.b)(X)


def case_state_without_a_file(jit):
    made = KeepsFile()
    try:
        return jit(lambda x: x * made.k)(X)
    finally:
        made.file.close()


def case_own_hash(jit):
    key = Rehashes(("loc", "scale"))
    table = {key: 2.0}
    return jit(lambda x: x * table[Rehashes(("loc", "scale"))])(X)


def case_state_that_links_children(jit):
    children = [Child(), Child()]
    made = Relinks(children)
    found = jit(lambda x: x * len(made.children) + (made.children[0].parent is made))(X)
    return found, all(child.parent is made for child in children)


def case_reduction_that_counts(jit):
    made, before = Numbered(2.0), Numbered.made
    found = jit(lambda x: x * made.k)(X)
    return found, Numbered.made - before


def case_list_that_iterates_otherwise(jit):
    items = Doubling([1.0, 2.0])
    return jit(lambda x: [x * item for item in items])(X)


def case_dict_that_sets_otherwise(jit):
    made = Once(a=1.0)
    made["b"] = 2.0
    return jit(lambda x: x * made["a"] + made["b"])(X)


def case_deque_with_its_own_constructor(jit):
    ring = Ring(2, 5.0)
    ring.extend([1.0, 2.0, 3.0])
    return jit(lambda x: [x * item * ring.unit for item in ring] + [x * ring.maxlen])(X)


def case_counter_with_an_attribute(jit):
    tally = Tally("abca")
    tally.unit = 3.0
    return jit(lambda x: x * tally["a"] * tally.unit)(X)


def case_ordered_dict_that_forgets(jit):
    made = Ordered(b=2.0, a=3.0)
    return jit(lambda x: {name: x * value for name, value in made.items()})(X)


def case_tuple_that_reverses(jit):
    made = Reversing((2.0, 3.0))
    return jit(lambda x: x * made[0])(X)


def case_fraction_with_an_attribute(jit):
    made = Ratio(3, 2)
    made.unit = 4.0
    return jit(lambda x: x * made.numerator * made.unit)(X)


def case_registered_reducer_that_forgets(jit):
    made = Registered(3.0)
    return jit(lambda x: x * made.k)(X)


def case_path_subclass(jit):
    made = Folder("a/b")
    return jit(lambda x: x * len(made.parts) * made.unit)(X)


def case_filled_random_property(jit):
    made = Cached(2.0)
    random.seed(7)
    first = made.noise
    return jit(lambda x: x * made.noise)(X), first


def case_filled_property_is_older_than_its_inputs(jit):
    made = Cached(2.0)
    made.total
    made.scale = 5.0
    return jit(lambda x: x * made.total + made.scale)(X)


def case_filled_property_that_counts(jit):
    made = Cached(2.0)
    made.count
    return jit(lambda x: x * made.count + made.seen)(X)


def case_filled_property_of_an_array(jit):
    made = Cached(2.0)
    made.vector
    return jit(lambda x: x * made.vector)(X)


def case_weak_set(jit):
    owners = [Owner(2.0), Owner(3.0)]
    group = weakref.WeakSet(owners)
    return jit(lambda x: x * sum(owner.k for owner in group) + len(group))(X)


def case_weak_key_dictionary(jit):
    owner = Owner(2.0)
    table = weakref.WeakKeyDictionary({owner: 5.0})
    return jit(lambda x: x * owner.k + table[owner])(X)


def case_weak_value_dictionary(jit):
    owner = Owner(2.0)
    table = weakref.WeakValueDictionary(a=owner)
    return jit(lambda x: x * table["a"].k)(X)


def case_weak_dictionary_whose_objects_died(jit):
    table = weakref.WeakValueDictionary(a=Owner(2.0))
    return jit(lambda x: x * len(table))(X)


def _caught(jit, failing, kinds=Exception):
    try:
        jit(failing)(X)
    except kinds as error:
        return error
    return None


def case_attributes_of_an_exception(jit):
    def failing(x):
        error = Failure("text")
        error.code, error.limits, error.shape = 7, (1.5, None), {"x": x.shape}
        raise error

    error = _caught(jit, failing, Failure)
    return error.code, error.limits, error.shape, str(error), list(error.args)


def case_exception_with_its_own_constructor(jit):
    def failing(x):
        raise Coded(3, hint="smaller")

    error = _caught(jit, failing, Coded)
    return error.code, error.hint, str(error), list(error.args)


def case_attribute_that_cannot_be_sent(jit):
    def failing(x):
        error = Failure("text")
        error.code, error.value = 7, x
        raise error

    error = _caught(jit, failing, Failure)
    return error.code, str(error)


class Located(OSError):
    def __init__(self, code, place):
        super().__init__(code, "lost")
        self.place = place

    def __str__(self):
        return f"{self.errno} at {self.place}"


class Picky(ValueError):
    def __new__(cls, first, second):
        return super().__new__(cls, first)

    def __init__(self, first, second):
        self.both = first, second

    @property
    def total(self):
        return sum(self.both)


def case_exception_whose_text_needs_its_attributes(jit):
    def failing(x):
        raise Located(2, "there")

    error = _caught(jit, failing, Located)
    return error.errno, error.strerror, error.place, str(error)


def case_exception_with_its_own_new(jit):
    def failing(x):
        raise Picky(3, second=4)

    error = _caught(jit, failing, Picky)
    return error.both, error.total, list(error.args)


def case_exception_group(jit):
    def failing(x):
        raise ExceptionGroup("several", [ValueError("one")])

    return "several" in str(_caught(jit, failing))


def case_notes_and_cause(jit):
    def failing(x):
        try:
            raise Coded(4)
        except Coded as cause:
            error = Failure("outer")
            error.add_note("a note")
            raise error from cause

    error = _caught(jit, failing, Failure)
    return error.__notes__[0], error.__cause__.code, error.__suppress_context__


def case_context(jit):
    def failing(x):
        try:
            raise Coded(4)
        except Coded:
            raise Failure("outer")  # noqa: B904

    error = _caught(jit, failing, Failure)
    return error.__cause__ is None, error.__context__.code, error.__suppress_context__


def case_context_that_is_suppressed(jit):
    def failing(x):
        try:
            raise Coded(4)
        except Coded:
            raise Failure("outer") from None

    error = _caught(jit, failing, Failure)
    return error.__cause__ is None, error.__context__.code, error.__suppress_context__


WARM = [
    "case_array_subclass_in_closure",
    "case_array_subclass_in_global",
    "case_array_subclass_that_is_a_view",
    "case_masked_array_subclass",
    "case_tree_subclass_with_a_default",
    "case_tree_subclass_with_attributes",
    "case_small_tree",
    "case_large_tree",
    "case_tree_with_a_box",
    "case_state_without_a_field",
    "case_state_without_a_function",
    "case_reduction_that_loses",
    "case_state_that_is_refused",
    "case_reduction_that_raises_inside",
    "case_slots",
    "case_state_without_a_file",
    "case_state_that_links_children",
    "case_reduction_that_counts",
    "case_list_that_iterates_otherwise",
    "case_dict_that_sets_otherwise",
    "case_deque_with_its_own_constructor",
    "case_counter_with_an_attribute",
    "case_ordered_dict_that_forgets",
    "case_tuple_that_reverses",
    "case_fraction_with_an_attribute",
    "case_registered_reducer_that_forgets",
    "case_filled_random_property",
    "case_filled_property_is_older_than_its_inputs",
    "case_filled_property_that_counts",
    "case_filled_property_of_an_array",
    "case_weak_key_dictionary",
    "case_weak_value_dictionary",
    "case_weak_dictionary_whose_objects_died",
]
