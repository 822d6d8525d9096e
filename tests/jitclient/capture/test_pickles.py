"""Objects whose class says itself how they are pickled are taken as they are, and none of its code runs."""

import random

import pytest

from jitclient.capture.dump import capture
from jitclient.capture.load import load
from jitclient.errors import CaptureError


def test_to_capture_an_object_changes_nothing(write):
    module = write(
        um_harm="""
        MADE = []
        class Child:
            pass
        class Parent:
            count = 0
            def __init__(self, children):
                Parent.count += 1
                MADE.append(len(MADE))
                self.children = children
                for child in children:
                    child.parent = self
            def __reduce__(self):
                return Parent, (self.children,)
        parent = Parent([Child(), Child()])
        def fn(x):
            return x, len(parent.children), parent.children[0].parent is parent
        """
    )
    loaded = load(capture(module.fn).payload)
    assert loaded.fn(1) == (1, 2, True)
    assert module.Parent.count == 1
    assert module.MADE == [0]
    assert all(child.parent is module.parent for child in module.parent.children)


def test_an_object_that_comes_back_is_made_as_its_class_says(write):
    module = write(
        um_hash="""
        class Key:
            def __init__(self, name):
                self.name, self.hash = name, hash(name)
            def __hash__(self):
                return self.hash
            def __eq__(self, other):
                return self.name == other.name
            def __reduce__(self):
                return Key, (self.name,)
        table = {Key("a"): 3}
        def fn(x):
            return table[Key("a")]
        """
    )
    assert str(hash("a")).encode() not in capture(module.fn).payload
    assert hash("a").to_bytes(8, "little", signed=True) not in capture(module.fn).payload
    assert load(capture(module.fn).payload).fn(1) == 3


def test_what_pickling_drops_may_be_of_no_use_elsewhere(write):
    module = write(
        um_dropped="""
        class Reader:
            def __init__(self):
                self.k, self.items = 3, (i for i in [1])
            def __getstate__(self):
                return {"k": self.k}
        reader = Reader()
        def unused(x):
            return x * reader.k
        def used(x):
            return list(reader.items)
        """
    )
    assert load(capture(module.unused).payload).fn(2) == 6
    with pytest.raises(CaptureError, match="generator"):
        load(capture(module.used).payload).fn(2)


def test_a_cached_property_is_run_once(write):
    module = write(
        um_cached="""
        import functools
        import random
        class A:
            runs = 0
            def __init__(self):
                self.k = 2
            @functools.cached_property
            def counted(self):
                A.runs += 1
                return self.k
            @functools.cached_property
            def drawn(self):
                return random.random()
            @functools.cached_property
            def plain(self):
                return [n for n in range(self.k)] and self.k * 2
        a = A()
        a.counted, a.drawn, a.plain
        def fn(x):
            return a.counted, a.drawn, a.plain
        """
    )
    random.seed(3)
    expected = random.random()
    random.seed(3)
    assert load(capture(module.fn).payload).fn(1) == (2, module.a.drawn, 4)
    assert random.random() == expected
    assert module.A.runs == 1


def test_whether_a_property_of_plain_values_was_looked_at_is_no_part_of_a_function(write):
    module = write(
        um_looked="""
        import functools
        class A:
            factor = 3
            def __init__(self):
                self.k = 2
            @functools.cached_property
            def size(self):
                return max(self.k * self.factor, 1)
        a = A()
        def fn(x):
            return a.size
        """
    )
    before = capture(module.fn).key
    assert module.a.size == 6
    assert capture(module.fn).key == before
    module.a.k = 5
    assert capture(module.fn).key != before
    assert load(capture(module.fn).payload).fn(1) == 6


def test_sets_of_a_class_of_ones_own_have_one_order(write):
    module = write(
        um_order="""
        class Names(set):
            pass
        class Backwards(dict):
            def items(self):
                return reversed(dict.items(self))
            def update(self, *args, **keywords):
                raise TypeError("read only")
            __setitem__ = update
        names, table = Names(["a", "b"]), Backwards(a=1, b=2)
        def fn(x):
            return sorted(names), list(dict.items(table)), list(table.items())
        """
    )
    expected = ["a", "b"], [("a", 1), ("b", 2)], [("b", 2), ("a", 1)]
    assert load(capture(module.fn).payload).fn(1) == expected


def test_an_object_may_reach_itself(write):
    module = write(
        um_cycle="""
        class Node(list):
            def __init__(self, k):
                self.k, self.me, self.call = k, self, self.run
            def run(self):
                return self.me.k
            def __getstate__(self):
                return {}
        node = Node(4)
        node.append(node)
        def fn(x):
            return node.call(), node[0] is node, node.me is node
        """
    )
    assert load(capture(module.fn).payload).fn(1) == (4, True, True)


def test_reading_a_file_to_be_pickled_is_no_input(write, tmp_path):
    path = tmp_path / "k.txt"
    path.write_text("5")
    module = write(
        um_rereads=f"""
        class A:
            def __init__(self):
                self.k = 2
            def __getstate__(self):
                with open({str(path)!r}) as file:
                    return {{"k": int(file.read())}}
        a = A()
        def fn(x):
            return a.k
        """
    )
    before = capture(module.fn).key
    assert load(capture(module.fn).payload).fn(1) == 2
    path.write_text("6")
    assert capture(module.fn).key == before


@pytest.mark.slow
def test_an_object_that_reaches_too_much_is_captured_as_it_is(write):
    module = write(
        um_large="""
        class Holder:
            def __init__(self, size):
                self.items = [[n] for n in range(size)]
            def __reduce__(self):
                return Holder, (len(self.items),)
        holder = Holder(20_000)
        def fn(x):
            return holder.items[x]
        """
    )
    assert load(capture(module.fn).payload).fn(19_999) == [19_999]


def test_an_attribute_that_a_copy_has_and_the_object_has_not(write):
    module = write(
        um_more="""
        class A:
            def __init__(self, k):
                self.k, self.bias = k, 1.0
            def __reduce__(self):
                return A, (self.k,)
        a = A(3)
        del a.bias
        def fn(x):
            return a.k, hasattr(a, "bias")
        """
    )
    assert load(capture(module.fn).payload).fn(1) == (3, False)


def test_a_number_that_is_its_own_hash_is_kept(write):
    module = write(
        um_number="""
        class A:
            k = 1
            def __init__(self, k):
                self.k = k
            def __hash__(self):
                return hash(self.k)
            def __getstate__(self):
                return {}
        a = A(7)
        def fn(x):
            return a.k
        """
    )
    assert load(capture(module.fn).payload).fn(1) == 7


@pytest.mark.parametrize("drops", ["__dict__", "slots"])
def test_a_container_of_ones_own_may_drop_what_is_of_no_use_elsewhere(write, drops):
    slots = "" if drops == "__dict__" else "__slots__ = ('k', 'items_left')"
    module = write(
        um_container=f"""
        class Config(dict):
            {slots}
            def __getstate__(self):
                return None, {{"k": self.k}}
        config = Config(a=2)
        config.k, config.items_left = 3, (i for i in [1])
        def fn(x):
            return config["a"], config.k
        """
    )
    assert load(capture(module.fn).payload).fn(1) == (2, 3)


@pytest.mark.parametrize("key", ["id(data)", "(1, id(data))", "7"])
def test_a_cache_by_address_that_an_installed_class_does_not_pickle(write, tmp_path, key):
    (tmp_path / "um_target-1.0.dist-info").mkdir()
    installed = write(
        um_sampler=f"""
        class Sampler:
            def __init__(self, data):
                self.cache = {{{key}: "found"}}
                self.data = data
            def __getstate__(self):
                return {{**self.__dict__, "cache": {{}}}}
            def is_there(self, data):
                return {key} in self.cache
        """
    )

    def function_of(data):
        sampler = installed.Sampler(data)
        return lambda x: (x, sampler, data)

    one, other = (capture(function_of([value, 2.0])) for value in (1.0, 1.0))  # equal values, at two addresses
    assert one.key == other.key
    assert one.key != capture(function_of([3.0, 2.0])).key
    _, sampler, data = load(one.payload).fn(1)
    assert sampler.data is data
    assert list(sampler.cache.values()) == ["found"]
    assert sampler.is_there(data)
    assert sampler.is_there([1.0]) == (key == "7")


def test_a_number_like_an_address_stays_one(write, tmp_path):
    (tmp_path / "um_target-1.0.dist-info").mkdir()
    installed = write(
        um_table="""
        class Table:
            cache = None
            def __getstate__(self):
                return {"cache": {}}
        """
    )
    table = installed.Table()
    table.cache = {2**40: "a", (2**40, id(table)): "b", (id(object),): "c"}
    made = load(capture(lambda x: (x, table)).payload).fn(1)[1]
    assert made.cache == {2**40: "a", (2**40, id(made)): "b", (id(object),): "c"}
