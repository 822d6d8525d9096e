"""Functions with what they refer to: closures, globals, helpers, defaults, and functions of many kinds.

Most programs make two functions that differ in one thing alone, so that a bug which takes them for one gives a wrong
value.
"""

import collections
import functools
import types

import helpers
import jax
import jax.numpy as jnp
import numpy as np
from pack import inner

X = np.arange(4, dtype=np.float32)
SCALE = 3.0
TABLE = {"a": 1.5, "b": [2, 3, {"c": 4.0}], 7: "seven"}
NESTED = (1, (2, (3, [4, (5,)])))


def case_closure_over_a_number(jit):
    def make(k):
        return lambda x: x * k + 1

    return [jit(make(k))(X) for k in (2, 3, 2.5, True)]


def case_closure_over_an_array(jit):
    def make(w):
        return lambda x: x @ w

    return [jit(make(w))(X) for w in (np.eye(4, dtype=np.float32), np.eye(4, dtype=np.float32) * 2, np.ones((4, 1)))]


def case_captured_dict(jit):
    def make(d):
        return lambda x: x * d["scale"] + len(d)

    return [jit(make(d))(X) for d in ({"scale": 2.0}, {"scale": 3.0}, {"scale": 2.0, "more": 0})]


def case_captured_dict_order(jit):
    def make(d):
        def f(x):
            total = x
            for key, value in d.items():
                total = total * 2 + value + len(key)
            return total

        return f

    return [jit(make(d))(X) for d in ({"a": 1.0, "bb": 2.0}, {"bb": 2.0, "a": 1.0})]


def case_captured_lists(jit):
    def make(items):
        return lambda x: sum(x**n for n in items)

    return [jit(make(items))(X) for items in ([1, 2], [2, 1, 0], (1, 2), [])]


def case_captured_sets(jit):
    def make(chosen):
        return lambda x: x * sum(chosen) + (7 if "b" in named else -7) + (3 in chosen)

    named = {"a", "b", "c"}
    first = jit(make({1, 2, 3}))(X)
    named = frozenset({"a", "c"})
    return first, jit(make(frozenset({1, 2})))(X)


def case_captured_namespace_and_defaultdict(jit):
    counts = collections.defaultdict(int, up=3)
    ordered = collections.OrderedDict(z=1, a=2)

    def make(options):
        def f(x):
            gain = options.gain if options.on else 0.0
            return x * gain + counts["up"] - list(ordered).index("a")

        return f

    return [jit(make(types.SimpleNamespace(gain=2.0, on=on)))(X) for on in (True, False)]


def case_globals_of_the_module(jit):
    def f(x):
        return x * SCALE + TABLE["b"][2]["c"] + len(TABLE[7]) + NESTED[1][1][1][1][0]

    return jit(f)(X)


def case_a_rebound_global(jit):
    global SCALE
    f = jit(lambda x: x + SCALE)
    SCALE = 5.0
    first = f(X)
    SCALE = 3.0
    return first, jit(lambda x: x + SCALE)(X)


def case_helper_modules(jit):
    def f(x):
        return helpers.scaled(x) + inner.shifted(x, by=2) + helpers.Constants.OFFSET

    def g(x):
        return helpers.scaled(x, 4.0) + inner.deeper.twice(x)

    return jit(f)(X), jit(g)(X)


def case_defaults_and_keyword_defaults(jit):
    def make(first, second):
        def f(x, a=first, *, b=second):
            return x * a - b

        return f

    return jit(make(2.0, 1.0))(X), jit(make(1.0, 2.0))(X), jit(make(2.0, 1.0))(X, 5.0), jit(make(2.0, 1.0))(X, b=4.0)


def case_lambdas_on_one_line(jit):
    add, sub, mul = (lambda x: x + 2), (lambda x: x - 2), (lambda x: x * 2)
    return [jit(f)(X) for f in (add, sub, mul)]


def case_recursion(jit):
    def power(x, n):
        return x * power(x, n - 1) if n else jnp.ones_like(x)

    def even(n):
        return n == 0 or odd(n - 1)

    def odd(n):
        return n != 0 and even(n - 1)

    return jit(lambda x: power(x, 3) + even(4))(X), jit(lambda x: power(x, 2) + even(3))(X)


def case_generators_and_comprehensions(jit):
    def terms(x, count):
        for n in range(count):
            yield x + n

    def f(x):
        return sum(terms(x, 3)) + sum(x * n for n in (1, 2)) + jnp.stack([x[i] * i for i in range(4)])

    return jit(f)(X)


def _twice(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(function(*args, **kwargs))

    wrapper.label = "twice"
    return wrapper


def _plus(amount):
    def decorate(function):
        @functools.wraps(function)
        def wrapper(x):
            return function(x) + amount

        return wrapper

    return decorate


def case_decorators(jit):
    @_twice
    def f(x):
        """Documented."""
        return x * 3 + 1

    g = _plus(1.0)(f)
    h = _plus(2.0)(f)
    return jit(f)(X), jit(g)(X), jit(h)(X), f.__name__, jit(f).__name__, jit(f).__doc__


def case_lru_cache(jit):
    @functools.cache
    def factor(n):
        return n * n + 0.5

    return jit(lambda x: x * factor(3))(X), jit(lambda x: x * factor(2))(X)


def case_partial(jit):
    def f(a, x, *, b=1.0):
        return a * x + b

    made = [functools.partial(f, 2.0), functools.partial(f, 3.0), functools.partial(f, 2.0, b=5.0)]
    return [jit(g)(X) for g in made], jit(jax.tree_util.Partial(f, np.float32(4.0)))(X)


class Layer:
    kind = "dense"
    bias = 0.25

    def __init__(self, weight):
        self.weight = weight

    def __call__(self, x):
        return x * self.weight + self.bias

    def shifted(self, x, by=1):
        return self(x) + by

    @staticmethod
    def halved(x):
        return x / 2

    @classmethod
    def biased(cls, x):
        return x + cls.bias

    @property
    def doubled(self):
        return self.weight * 2


class Steep(Layer):
    bias = 0.75

    def shifted(self, x, by=2):
        return super().shifted(x, by) * self.doubled


def case_bound_methods(jit):
    layers = [Layer(2.0), Layer(3.0), Steep(2.0)]
    return [jit(layer.shifted)(X) for layer in layers] + [jit(Steep.biased)(X), jit(Layer.halved)(X)]


def case_callable_objects(jit):
    return jit(Layer(2.0))(X), jit(Steep(2.0))(X), jit(Layer(np.float32(2.5)))(X)


class Slotted:
    __slots__ = ("high", "low")

    def __init__(self, low, high):
        self.low, self.high = low, high


def case_captured_objects(jit):
    def make(bounds):
        return lambda x: jnp.clip(x, bounds.low, bounds.high)

    return jit(make(Slotted(0.5, 2.0)))(X), jit(make(Slotted(2.0, 2.5)))(X), jit(make(Slotted(low=1, high=1)))(X)


def case_classes_made_in_functions(jit):
    def make(n):
        class Made:
            amount = n

            def __add__(self, other):
                return other + self.amount

        return lambda x: Made() + x

    return jit(make(1))(X), jit(make(2.5))(X)


def case_shared_and_cyclic_objects(jit):
    shared = [1.0, 2.0]
    pair = (shared, shared)
    ring = {"value": 3.0}
    ring["self"] = ring

    def f(x):
        return x * pair[0][1] + (pair[0] is pair[1]) + ring["self"]["self"]["value"]

    apart = ([1.0, 2.0], [1.0, 2.0])

    def g(x):
        return x * apart[0][1] + (apart[0] is apart[1])

    return jit(f)(X), jit(g)(X)


def case_numpy_scalars_and_dtypes(jit):
    def make(scalar):
        return lambda x: x + scalar

    kinds = (np.float32(0.1), np.float64(0.1), 0.1, np.int8(3), np.bool_(True), np.float16(0.1))
    return [jit(make(scalar))(X) for scalar in kinds], jit(lambda x: x.astype(np.dtype("int16")))(X)


def case_strings_and_bytes_decide(jit):
    def make(mode):
        def f(x):
            match mode:
                case "double" | b"double":
                    return x * 2
                case str():
                    return x * len(mode)
                case _:
                    return x - 1

        return f

    return [jit(make(mode))(X) for mode in ("double", b"double", "triple", "", b"", "d\u00e9j\u00e0", None, ...)]


def case_slices_ranges_and_complex(jit):
    def make(part, turn, steps):
        return lambda x: x[part] * turn + sum(steps)

    first = jit(make(slice(1, None, 2), 1 + 2j, range(2, 8, 3)))(X)
    return first, jit(make(slice(None, 2), 1 - 2j, range(2, 8, 2)))(X)


def case_large_integers_and_odd_floats(jit):
    def make(k):
        return lambda x: jnp.where(x > 1, k, x)

    values = (float("inf"), float("-inf"), float("nan"), -0.0, 0.0, 1e-45, 2**31 - 1)
    return [jit(make(value))(X) for value in values], jit(lambda x: x + (2**40 % 7) + len(str(10**30)))(X)


def case_same_code_other_names(jit):
    def first(x):
        return helpers.up(x)

    def second(x):
        return helpers.down(x)

    return jit(first)(X), jit(second)(X), jit(helpers.up)(X), jit(helpers.down)(X)


def case_operators_alone_differ(jit):
    def make(text):
        space = {"jnp": jnp}
        exec(f"def f(x):\n    return {text}", space)
        return space["f"]

    return [jit(make(text))(X) for text in ("x + 1", "x - 1", "1 - x", "-x", "x // 2", "x % 2", "jnp.sin(x)")]


def case_exception_handling_inside(jit):
    def f(x):
        try:
            raise KeyError("inner")
        except KeyError as error:
            x = x + len(error.args[0])
        finally:
            x = x * 2
        with np.errstate(all="ignore"):
            return x - 1

    return jit(f)(X)
