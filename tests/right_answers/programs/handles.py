"""Uses of jitted functions and of the arrays that they return."""

import copy
import functools
import inspect
import weakref

import jax
import numpy as np

X = np.arange(3.0, dtype=np.float32)


def sq(x):
    return x * x


def _used_inside(jitted):
    """Return a jitted function that was part of another function's trace before."""
    jax.jit(lambda x: jitted(x))(1.0)
    jax.grad(jitted)(1.0)
    return jitted


def doubled(fun):
    @functools.wraps(fun)
    def wrapper(*args, **kwargs):
        return 2 * fun(*args, **kwargs)

    return wrapper


# ---- wrappers around jitted functions


def case_jit_of_grad_of_jit(jit):
    inner = _used_inside(jit(sq))
    return jax.jit(jit(jax.grad(inner)))(3.0), jit(jax.grad(inner))(3.0), jit(jit(jax.grad(inner)))(3.0)


def case_value_and_grad_of_jit(jit):
    inner = _used_inside(jit(sq))
    return jit(jax.value_and_grad(inner))(3.0), jit(jax.vmap(inner))(X), jit(jax.checkpoint(inner))(3.0)


def case_wraps_over_jit(jit):
    return doubled(_used_inside(jit(sq)))(3.0), doubled(jit(sq))(3.0)


def case_jit_over_wraps_over_jit(jit):
    return jit(doubled(jit(sq)))(3.0), jit(doubled(_used_inside(jit(sq))))(3.0)


def case_wraps_over_jit_over_wraps(jit):
    inner = _used_inside(jit(doubled(sq)))
    return doubled(inner)(3.0), doubled(jit(doubled(inner)))(3.0), jit(doubled(jit(doubled(inner))))(3.0)


def case_stack_inside_a_trace(jit):
    outer = jit(doubled(_used_inside(jit(doubled(_used_inside(jit(sq)))))))
    return jax.jit(outer)(3.0), jit(lambda x: outer(x) + 1)(3.0), jax.grad(outer)(3.0), outer(3.0)


def case_a_call_between_changes_nothing(jit):
    inner = jit(sq)
    inner(3.0)
    outer = jit(doubled(inner))
    return outer(3.0), inner(3.0), outer(3.0), jax.jit(outer)(3.0), jax.jit(inner)(3.0)


def case_update_wrapper_of_a_jitted_function(jit):
    """Take the other's description, and compute the same as before."""

    def other(x):
        "Another."
        return x + 100

    jitted = jit(sq)
    functools.update_wrapper(jitted, other)
    again = jitted(3.0), jax.jit(lambda x: jitted(x))(3.0), jit(lambda x: jitted(x))(3.0)
    return again, jitted.__doc__, jitted.__wrapped__ is other


def case_other_options(jit):
    def power(x, n):
        return x**n

    first, second = jit(power, static_argnums=1), jit(power, static_argnames="n")
    third = jit(_used_inside_static(first), static_argnums=1)
    return first(X, 2), second(X, n=3), third(X, 3), jax.jit(third, static_argnums=1)(X, 2)


def _used_inside_static(jitted):
    jax.jit(lambda x: jitted(x, 2))(1.0)
    return jitted


def case_partial_of_a_jitted_function(jit):
    inner = _used_inside(jit(lambda a, b=1.0: a * 2 + b))
    partial = functools.partial(inner, b=5.0)
    outer = jit(partial)
    return partial(1.0), outer(1.0), jax.jit(outer)(1.0), jit(functools.partial(outer))(1.0), outer.__name__


def case_methods(jit):
    class Model:
        factor = 3.0

        @functools.partial(jit, static_argnums=0)
        def scaled(self, x):
            return x * self.factor

        @jit
        def twice(x):
            return x * 2

        @classmethod
        @functools.partial(jit, static_argnums=0)
        def of_class(cls, x):
            return x * cls.factor + 1

        @staticmethod
        @jit
        def alone(x):
            return x + 7

        @functools.partial(jit, static_argnums=0)
        @doubled
        def wrapped(self, x):
            return x * self.factor

    class Other(Model):
        factor = 5.0

    found = [
        (model.scaled(X), type(model).of_class(X), model.of_class(X), model.alone(X), model.wrapped(X))
        for model in (Model(), Other(), Model())
    ]
    jax.jit(lambda x: Model().scaled(x) + Model().wrapped(x))(X)
    return found, Model.twice(X), Other().scaled(X), jit(Other().scaled)(X), jax.jit(Other().wrapped)(X)


def case_jit_of_a_bound_method_and_of_an_object(jit):
    class Scale:
        def __init__(self, by):
            self.by = by
            self.trace = self.look = self._local = self._remote = "a field"
            self._options = self._programs = self._fun = self._capture = "a field"

        def __call__(self, x):
            return x * self.by

    scale = Scale(4.0)
    outer = jit(scale)
    return outer(X), jax.jit(outer)(X), jit(scale.__call__)(X), outer.by


def case_attributes_of_the_function(jit):
    def fun(x):
        return x + 1

    fun.note, fun.late_too = [1], 3
    fun._programs = fun._capture = fun._jitted_here = fun._last = fun._deps = "mine"
    jitted = jit(fun)
    jitted.foo = 2
    wrapped = functools.wraps(jitted)(lambda x: x)
    seen = [(one.note is fun.note, one.foo, one.late_too) for one in (jitted, wrapped, jit(jitted))]
    fun.late = 1
    return seen, jitted(X), hasattr(jitted, "late"), hasattr(fun, "foo"), jax.jit(jitted)(X)


def case_attributes_that_the_body_reads(jit):
    def fun(x):
        return x + 1

    jitted = jit(fun)
    jitted.scale = 4.0
    theirs = jax.jit(fun)
    theirs.scale = 5.0
    return jit(lambda x: jitted(x) * jitted.scale)(X), jit(lambda x: theirs(x) * theirs.scale)(X)


def case_wraps_over_plain_jit(jit):
    inner = jax.jit(sq)
    return jit(doubled(inner))(3.0), jit(doubled(jit(doubled(inner))))(3.0)


def case_description(jit):
    def fun(x: int, *, n: float = 2.0) -> int:
        "Multiply."
        return x * n

    found = []
    for one in (jit(fun), jit(doubled(jit(fun))), jit(functools.partial(fun, n=3.0))):
        described = one.__name__, one.__qualname__, one.__module__, one.__doc__
        found.append((*described, str(inspect.signature(one)), callable(one.__wrapped__), one.__wrapped__(3.0)))
    return found


def case_identity(jit):
    first, second = jit(sq), jit(sq)
    table = {first: 1, second: 2}
    alive = weakref.ref(first)
    return table[first], table[second], first == second, first != second, alive() is first


def case_copies(jit):
    jitted = _used_inside(jit(sq))
    held = copy.deepcopy({"fun": jitted, "x": [1]})
    return copy.copy(jitted)(3.0), held["fun"](3.0), jax.jit(held["fun"])(3.0), jit(lambda x: held["fun"](x))(2.0)


def case_renamed(jit):
    jitted = jit(sq)
    jitted.__name__, jitted.__wrapped__ = "other", None
    return jitted(3.0), jax.jit(lambda x: jitted(x))(3.0), jitted.__name__


# ---- values that a trace leaves behind

KEY = jax.random.key(0)


def _attempt(use, *args):
    """Return the value of a use, or the name of its exception."""
    try:
        return use(*args)
    except Exception as error:
        return type(error).__name__


def _uses(jit, fun, look):
    """The second use of what a trace left: by the same program, by new ones, and outside."""
    jitted = jit(fun)
    found = [_attempt(jitted, 1.0), _attempt(jitted, 1.0), _attempt(jax.random.normal, look()), look().shape]
    found += [_attempt(jit(lambda x: jax.random.normal(look()) + x), 1.0), _attempt(jit(lambda k: k), look())]
    return [*found, _attempt(jitted, X), _attempt(jitted, 1.0), _attempt(jax.random.split, look()), repr(look())]


def case_global_key(jit):
    global KEY
    KEY = jax.random.key(0)

    def draw(x):
        global KEY
        KEY, sub = jax.random.split(KEY)
        return jax.random.normal(sub) + x

    return _uses(jit, draw, lambda: KEY)


def case_key_in_a_closure(jit):
    key = jax.random.key(1)

    def draw(x):
        nonlocal key
        key, sub = jax.random.split(key)
        return jax.random.normal(sub) + x

    return _uses(jit, draw, lambda: key)


def case_key_of_an_object(jit):
    class Model:
        def __init__(self):
            self.key = jax.random.key(2)

        def draw(self, x):
            self.key, sub = jax.random.split(self.key)
            return jax.random.normal(sub) + x

    model = Model()
    return _uses(jit, model.draw, lambda: model.key)


def case_key_of_an_object_whose_pickle_forgets_it(jit):
    class Model:
        def __init__(self):
            self.key = jax.random.key(2)

        def __getstate__(self):
            return {}

        def draw(self, x):
            self.key, sub = jax.random.split(self.key)
            return jax.random.normal(sub) + x

    model = Model()
    return _uses(jit, model.draw, lambda: model.key)


def case_keys_in_a_tuple_and_a_dict(jit):
    class Model:
        def __init__(self):
            self.state = (jax.random.key(3), {"key": jax.random.key(4)})

        def draw(self, x):
            first, second = jax.random.split(self.state[0])
            self.state = (first, {"key": second})
            return jax.random.normal(second) + x

    model = Model()
    return _uses(jit, model.draw, lambda: model.state[1]["key"]), len(model.state)


def case_bound_anew_after_it_was_left(jit):
    global KEY
    KEY = jax.random.key(0)

    def draw(x):
        global KEY
        KEY, sub = jax.random.split(KEY)
        return jax.random.normal(sub) + x

    drawn = [jit(draw)(1.0)]
    for seed in range(3):
        KEY = jax.random.key(seed)
        drawn.append(jit(lambda x, seed=seed: draw(x) * 1)(1.0))
    return drawn


def case_a_program_that_read_it_goes_on(jit):
    global KEY
    KEY = jax.random.key(7)

    def draw(x):
        global KEY
        KEY, sub = jax.random.split(KEY)
        return jax.random.normal(sub) + x

    reads = jit(lambda x: jax.random.normal(KEY) + x)
    return reads(1.0), jit(draw)(1.0), reads(1.0), _attempt(reads, X), reads(1.0)


def case_a_value_kept_and_never_used(jit):
    class Log:
        last = None

        def step(self, x):
            self.last = x * 2
            return x + 1

    log = Log()
    step = jit(log.step)
    return step(1.0), step(X), step(1.0), log.last.shape, _attempt(float, log.last)


def case_a_value_left_by_plain_jit(jit):
    global KEY
    KEY = jax.random.key(8)

    def draw(x):
        global KEY
        KEY, sub = jax.random.split(KEY)
        return jax.random.normal(sub) + x

    return jax.jit(draw)(1.0), _attempt(jit(lambda x: jax.random.normal(KEY) + x), 1.0)
