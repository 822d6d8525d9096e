"""The order in which code iterates over sets, which differs between processes."""

import dataclasses
import functools

import jax
import jax.numpy as jnp

KEYS = {"loc", "scale", "shape", "rate", "df"}
FROZEN = frozenset(KEYS)
COLLIDING = set(map(int, (8, 0, 16, 24)))  # they fall into one place of a set: their order tells how it was filled
TYPES = {jnp.float32, jnp.int32, jnp.bool_}

ARGUMENT = {name: jnp.float32(number) for number, name in enumerate(sorted(KEYS))}

SEEDED = [
    "case_captured_set",
    "case_captured_frozenset",
    "case_closure_and_default",
    "case_display_in_code",
    "case_attribute_of_an_object",
    "case_set_in_a_list",
    "case_node_that_flattens_in_the_order_of_a_set",
]
WARM = [
    "case_sorted",
    "case_membership_and_size",
    "case_set_of_integers",
    "case_sorted_sets_made_inside",
    "case_error_text_with_a_set",
    "case_frozen_dataclass_with_tags",
    "case_attribute_for_membership",
]


def _named(values):
    """Values in the order of KEYS, by their names."""
    return dict(zip(KEYS, values, strict=True))


def case_captured_set(jit):
    return _named(jit(lambda d: tuple(d[k] * 1 for k in KEYS))(ARGUMENT))


def case_captured_frozenset(jit):
    return dict(zip(FROZEN, jit(lambda d: tuple(d[k] * 1 for k in FROZEN))(ARGUMENT), strict=True))


def case_closure_and_default(jit):
    names = {"loc", "df", "rate"}

    def f(d, more=names):
        return [d[k] for k in names], [d[k] * 2 for k in more]

    first, second = jit(f)(ARGUMENT)
    return dict(zip(names, first, strict=True)), dict(zip(names, second, strict=True))


def case_display_in_code(jit):
    f = jit(lambda d: {n: d[k] for n, k in enumerate({"loc", "scale", "rate", "df"})})
    return dict(zip({"loc", "scale", "rate", "df"}, f(ARGUMENT).values(), strict=True))


def case_comprehension(jit):
    f = jit(lambda d: [d[k] for k in {name.lower() for name in d}])
    return dict(zip({name.lower() for name in ARGUMENT}, f(ARGUMENT), strict=True))


def case_set_of_keys(jit):
    f = jit(lambda d: [d[k] for k in d.keys() & {"loc", "scale", "df"}])
    return dict(zip(ARGUMENT.keys() & {"loc", "scale", "df"}, f(ARGUMENT), strict=True))


def case_set_called_with_a_dictionary(jit):
    f = jit(lambda d: [d[k] for k in set(d)])
    return dict(zip(set(ARGUMENT), f(ARGUMENT), strict=True))


def case_helper_that_returns_a_set(jit):
    def names(d):
        return {k for k in d if k != "df"}

    f = jit(lambda d: [d[k] for k in names(d)])
    return dict(zip(names(ARGUMENT), f(ARGUMENT), strict=True))


def case_popped_and_joined(jit):
    def f(d):
        left = set(KEYS)
        first = left.pop()
        return d[first], d["+".join(left).split("+")[0]]

    left = set(KEYS)
    first = left.pop()
    return dict(zip([first, next(iter(left))], jit(f)(ARGUMENT), strict=True))


def case_set_in_a_list(jit):
    holder = [KEYS]
    return _named(jit(lambda d: [d[k] for k in holder[0]])(ARGUMENT))


def case_attribute_of_an_object(jit):
    class Holder:
        def __init__(self):
            self.names = set(KEYS)

        def __call__(self, d):
            return [d[k] for k in self.names]

    holder = Holder()
    return dict(zip(holder.names, jit(holder)(ARGUMENT), strict=True))


def case_static_argument(jit):
    f = functools.partial(jit, static_argnums=1)(lambda d, names: [d[k] for k in names])
    return dict(zip(FROZEN, f(ARGUMENT, FROZEN), strict=True))


def case_set_subclass(jit):
    class Names(set):
        pass

    names = Names(KEYS)
    return dict(zip(names, jit(lambda d: [d[k] for k in names])(ARGUMENT), strict=True))


def case_colliding_integers(jit):
    return jit(lambda x: [x * n for n in COLLIDING])(1.0)


def case_types_by_address(jit):
    return jit(lambda x: [x.astype(t) for t in TYPES])(2.5)


def case_order_in_the_key(jit):
    """Two sets of equal elements that were filled in another order, not by bytecode, whose constants it may change."""
    one, other = set(map(int, (0, 8, 16))), set(map(int, (16, 8, 0)))
    return [jit(lambda x, s=s: [x * n for n in s])(1.0) for s in (one, other)]


@jax.tree_util.register_pytree_node_class
class Pair:
    """A node that flattens in the order of a set."""

    FIELDS = {"first", "second", "third"}

    def __init__(self, **fields):
        vars(self).update(fields)

    def tree_flatten(self):
        return tuple(getattr(self, name) for name in self.FIELDS), tuple(self.FIELDS)[:1]

    @classmethod
    def tree_unflatten(cls, meta, children):
        return cls(**dict(zip(cls.FIELDS, children, strict=True)))


def case_node_that_flattens_in_the_order_of_a_set(jit):
    f = jit(lambda p: Pair(first=p.first * 10, second=p.second * 100, third=p.third))
    got = f(Pair(first=1.0, second=2.0, third=3.0))
    return got.first, got.second, got.third


# ---- code to which the order of a set does not matter


def case_sorted(jit):
    return jit(lambda d: tuple(d[k] * 1 for k in sorted(KEYS)))(ARGUMENT)


def case_membership_and_size(jit):
    def f(d):
        assert set(d) <= KEYS
        return {k: v * len(KEYS) if k in KEYS and k not in {"df", "loc"} else v for k, v in d.items()}

    return jit(f)(ARGUMENT)


def case_set_of_integers(jit):
    return jit(lambda x: [x * n for n in {1, 2, 3}])(2.0)


def case_sorted_sets_made_inside(jit):
    return jit(lambda d: [d[k] for k in sorted(set(d) - {"df"})] + [len({k[0] for k in d})])(ARGUMENT)


def case_error_text_with_a_set(jit):
    def f(d):
        unknown = set(d) - KEYS
        if unknown:
            raise ValueError(f"unknown names: {unknown}")
        return d["loc"]

    return jit(f)(ARGUMENT)


@dataclasses.dataclass(frozen=True)
class Config:
    scale: float
    tags: frozenset = frozenset({"fast", "wide", "deep"})


def case_frozen_dataclass_with_tags(jit):
    config = Config(3.0)
    return jit(lambda x: x * config.scale if "fast" in config.tags else x)(2.0)


def case_attribute_for_membership(jit):
    class Holder:
        def __init__(self):
            self.names = set(KEYS)

        def __call__(self, d):
            return [v for k, v in d.items() if k in self.names]

    return jit(Holder())(ARGUMENT)
